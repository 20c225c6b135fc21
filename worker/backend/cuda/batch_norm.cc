// batch_norm over all axes but the last, its gradient, and inference; fused with its relu.
#include "worker/backend/cuda/kernels/batch_norm.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/kernel_table.h"

namespace ringmaster::cuda {
namespace {

BatchNormShape NormShapeOf(const BindContext& context) {
  const auto& attributes = context.attributes<graph::BatchNormAttributes>();
  const graph::Shape& x = context.input(0).shape;
  return {graph::Elements(x) / x.back(), x.back(), static_cast<float>(attributes.epsilon),
          attributes.activation == graph::Activation::kRelu};
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindBatchNorm(const BindContext& context) {
  const BatchNormShape shape = NormShapeOf(context);
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLaunch(
        [shape](const Operands& o, cudaStream_t stream) {
          return FromCuda(LaunchBatchNorm(shape, o.input<T>(0), o.input<float>(1),
                                          o.input<float>(2), o.output<T>(0), o.output<float>(1),
                                          o.output<float>(2), o.workspace, stream),
                          "batch_norm");
        },
        BatchNormWorkspace(shape, sizeof(T)));
  });
}

StatusOr<std::unique_ptr<Kernel>> BindBatchNormInference(const BindContext& context) {
  const BatchNormShape shape = NormShapeOf(context);
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLaunch(
        [shape](const Operands& o, cudaStream_t stream) {
          return FromCuda(
              LaunchBatchNormInference(shape, o.input<T>(0), o.input<float>(1), o.input<float>(2),
                                       o.input<float>(3), o.input<float>(4), o.output<T>(0),
                                       o.workspace, stream),
              "batch_norm_inference");
        },
        BatchNormWorkspace(shape, sizeof(T)));
  });
}

StatusOr<std::unique_ptr<Kernel>> BindBatchNormGradient(const BindContext& context) {
  const BatchNormShape shape = NormShapeOf(context);
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLaunch(
        [shape](const Operands& o, cudaStream_t stream) {
          const BatchNormGradientOperands<T> operands = {.x = o.input<T>(0),
                                                         .dy = o.input<T>(1),
                                                         .y = shape.relu ? o.input<T>(5) : nullptr,
                                                         .gamma = o.input<float>(4),
                                                         .mean = o.input<float>(2),
                                                         .variance = o.input<float>(3),
                                                         .dx = o.output<T>(0),
                                                         .dgamma = o.output<float>(1),
                                                         .dbeta = o.output<float>(2),
                                                         .workspace = o.workspace};
          return FromCuda(LaunchBatchNormGradient(shape, operands, stream), "batch_norm_gradient");
        },
        BatchNormWorkspace(shape, sizeof(T)));
  });
}

}  // namespace ringmaster::cuda
