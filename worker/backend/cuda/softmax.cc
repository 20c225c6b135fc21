// softmax and its gradient; softmax_cross_entropy and its gradient, in float32 logits with sums in
// double, and top_k.
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel_table.h"
#include "worker/backend/cuda/kernels/normalization.h"

namespace ringmaster::cuda {

// Over the last axis.
StatusOr<std::unique_ptr<Kernel>> BindSoftmax(const BindContext& context) {
  const graph::Shape& shape = context.output(0).shape;
  const int64_t classes = shape.back(), rows = graph::Elements(shape) / classes;
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([rows, classes](const Operands& o, cudaStream_t stream) {
      return FromCuda(LaunchSoftmax(rows, classes, o.input<T>(0), o.output<T>(0), stream),
                      "softmax");
    });
  });
}

StatusOr<std::unique_ptr<Kernel>> BindSoftmaxGradient(const BindContext& context) {
  const graph::Shape& shape = context.output(0).shape;
  const int64_t classes = shape.back(), rows = graph::Elements(shape) / classes;
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([rows, classes](const Operands& o, cudaStream_t stream) {
      return FromCuda(LaunchSoftmaxGradient(rows, classes, o.input<T>(0), o.input<T>(1),
                                            o.output<T>(0), stream),
                      "softmax_gradient");
    });
  });
}

namespace {

LogitsShape LogitsShapeOf(const BindContext& context) {
  const auto* loss = context.node.attributes<graph::SoftmaxCrossEntropyAttributes>();
  return {context.input(0).shape[0], context.input(0).shape[1],
          loss == nullptr ? 0 : loss->label_smoothing};
}

// The share of rows' own targets, the input behind so many others; nullptr: there is none.
const float* ShareOf(const Operands& operands, size_t others) {
  return operands.inputs.size() == others ? nullptr : operands.input<float>(others);
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindSoftmaxCrossEntropy(const BindContext& context) {
  const LogitsShape shape = LogitsShapeOf(context);
  return MakeLaunch(
      [shape](const Operands& o, cudaStream_t stream) {
        return FromCuda(LaunchLoss(shape, o.input<float>(0), o.input<int32_t>(1), ShareOf(o, 2),
                                   o.output<float>(0), o.workspace, stream),
                        "softmax_cross_entropy");
      },
      LossWorkspace(shape));
}

StatusOr<std::unique_ptr<Kernel>> BindSoftmaxCrossEntropyGradient(const BindContext& context) {
  const LogitsShape shape = LogitsShapeOf(context);
  return MakeLaunch([shape](const Operands& o, cudaStream_t stream) {
    return FromCuda(
        LaunchLossGradient(shape, o.input<float>(0), o.input<int32_t>(1), o.input<float>(2),
                           ShareOf(o, 3), o.output<float>(0), stream),
        "softmax_cross_entropy_gradient");
  });
}

StatusOr<std::unique_ptr<Kernel>> BindTopK(const BindContext& context) {
  const LogitsShape shape = LogitsShapeOf(context);
  return MakeLaunch(
      [shape, k = context.attributes<graph::TopK>().k](const Operands& o, cudaStream_t stream) {
        return FromCuda(LaunchTopK(shape, k, o.input<float>(0), o.input<int32_t>(1),
                                   o.output<float>(0), o.workspace, stream),
                        "top_k");
      },
      LossWorkspace(shape));
}

}  // namespace ringmaster::cuda
