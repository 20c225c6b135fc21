// batch_norm, group_norm and layer_norm, softmax with the losses over it, and their gradients.
#include "worker/backend/cuda/kernels/normalization.h"

#include "common/graph/ops/group_norm.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"

namespace ringmaster::cuda {

// batch_norm over all axes but the last, its gradient, and inference; fused with its activation.

namespace {

BatchNormShape NormShapeOf(const BindContext& context) {
  const auto& attributes = context.attributes<graph::BatchNormAttributes>();
  const graph::Shape& x = context.input(0).shape;
  return {graph::Elements(x) / x.back(), x.back(), static_cast<float>(attributes.epsilon),
          attributes.activation, attributes.residual};
}

// Where gamma and beta, or their gradients, stand among the operands; 0, where x and dx are: there
// is none.
struct NormPlaces {
  size_t gamma, beta;
  size_t end;  // what comes after them

  NormPlaces(const graph::BatchNormAttributes& attributes, size_t first)
      : gamma(attributes.scale ? first : 0),
        beta(attributes.center ? first + (attributes.scale ? 1 : 0) : 0),
        end(first + (attributes.scale ? 1 : 0) + (attributes.center ? 1 : 0)) {}
};

NormPlaces PlacesIn(const BindContext& context, size_t first) {
  return {context.attributes<graph::BatchNormAttributes>(), first};
}

const float* InputOrNone(const Operands& o, size_t i) {
  return i == 0 ? nullptr : o.input<float>(i);
}
float* OutputOrNone(const Operands& o, size_t i) { return i == 0 ? nullptr : o.output<float>(i); }

// Of the forward pass: the residual is the last operand.
template <typename T>
BatchNormOperands<T> ForwardOperands(const BatchNormShape& shape, const NormPlaces& at,
                                     const Operands& o) {
  return {.x = o.input<T>(0),
          .residual = shape.residual ? o.input<T>(o.inputs.size() - 1) : nullptr,
          .gamma = InputOrNone(o, at.gamma),
          .beta = InputOrNone(o, at.beta),
          .y = o.output<T>(0),
          .workspace = o.workspace};
}

}  // namespace

// x [gamma] [beta] [residual] -> y mean variance
StatusOr<std::unique_ptr<Kernel>> BindBatchNorm(const BindContext& context) {
  const BatchNormShape shape = NormShapeOf(context);
  const NormPlaces at = PlacesIn(context, 1);
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLaunch(
        [=](const Operands& o, cudaStream_t stream) {
          return FromCuda(LaunchBatchNorm(shape, ForwardOperands<T>(shape, at, o),
                                          o.output<float>(1), o.output<float>(2), stream),
                          "batch_norm");
        },
        BatchNormWorkspace(shape, sizeof(T)));
  });
}

// x [gamma] [beta] mean variance [residual] -> y
StatusOr<std::unique_ptr<Kernel>> BindBatchNormInference(const BindContext& context) {
  const BatchNormShape shape = NormShapeOf(context);
  const NormPlaces at = PlacesIn(context, 1);
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLaunch(
        [=](const Operands& o, cudaStream_t stream) {
          return FromCuda(
              LaunchBatchNormInference(shape, ForwardOperands<T>(shape, at, o),
                                       o.input<float>(at.end), o.input<float>(at.end + 1), stream),
              "batch_norm_inference");
        },
        BatchNormWorkspace(shape, sizeof(T)));
  });
}

// dy [gamma] variance -> dx
StatusOr<std::unique_ptr<Kernel>> BindBatchNormInferenceGradient(const BindContext& context) {
  BatchNormShape shape = NormShapeOf(context);
  shape.activation = graph::Activation::kNone;
  shape.residual = false;
  const bool scale = context.attributes<graph::BatchNormAttributes>().scale;
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLaunch(
        [=](const Operands& o, cudaStream_t stream) {
          return FromCuda(LaunchBatchNormInferenceGradient(
                              shape, o.input<T>(0), InputOrNone(o, scale ? 1 : 0),
                              o.input<float>(scale ? 2 : 1), o.output<T>(0), o.workspace, stream),
                          "batch_norm_inference_gradient");
        },
        BatchNormWorkspace(shape, sizeof(T)));
  });
}

// x dy mean variance [gamma] [beta, with an activation] -> dx [dgamma] [dbeta], or with a residual
// x dy mean variance gamma beta y [more_dy] -> dx dgamma dbeta dresidual
StatusOr<std::unique_ptr<Kernel>> BindBatchNormGradient(const BindContext& context) {
  const BatchNormShape shape = NormShapeOf(context);
  const NormPlaces gradients = PlacesIn(context, 1);
  const NormPlaces at = PlacesIn(context, 4);
  const size_t beta = shape.activation != graph::Activation::kNone ? at.beta : 0;
  const bool two = context.node.inputs.size() > at.end + 1;
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLaunch(
        [=](const Operands& o, cudaStream_t stream) {
          const BatchNormGradientOperands<T> operands = {
              .x = o.input<T>(0),
              .dy = o.input<T>(1),
              .more_dy = shape.residual && two ? o.input<T>(at.end + 1) : nullptr,
              .y = shape.residual ? o.input<T>(at.end) : nullptr,
              .gamma = InputOrNone(o, at.gamma),
              .beta = InputOrNone(o, beta),
              .mean = o.input<float>(2),
              .variance = o.input<float>(3),
              .dx = o.output<T>(0),
              .dresidual = shape.residual ? o.output<T>(gradients.end) : nullptr,
              .dgamma = OutputOrNone(o, gradients.gamma),
              .dbeta = OutputOrNone(o, gradients.beta),
              .workspace = o.workspace};
          return FromCuda(LaunchBatchNormGradient(shape, operands, stream), "batch_norm_gradient");
        },
        BatchNormWorkspace(shape, sizeof(T)));
  });
}

// group_norm, layer_norm and their gradients.

namespace {

GroupNormShape GroupNormShapeOf(const BindContext& context) {
  const graph::NormSets sets = graph::NormSetsOf(context.node, context.input(0).shape);
  return {sets.samples, sets.positions, sets.groups, sets.channels,
          context.attributes<graph::NormAttributes>().epsilon};
}

// Operand i, which is not there where `wanted` says so.
const float* InputIf(bool wanted, const Operands& o, size_t i) {
  return wanted ? o.input<float>(i) : nullptr;
}
float* OutputIf(bool wanted, const Operands& o, size_t i) {
  return wanted ? o.output<float>(i) : nullptr;
}

}  // namespace

// x [gamma] [beta] -> y mean inverse
StatusOr<std::unique_ptr<Kernel>> BindNorm(const BindContext& context) {
  const GroupNormShape shape = GroupNormShapeOf(context);
  const auto& attributes = context.attributes<graph::NormAttributes>();
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([=, scale = attributes.scale, center = attributes.center](
                          const Operands& o, cudaStream_t stream) {
      return FromCuda(LaunchGroupNorm(shape, o.input<T>(0), InputIf(scale, o, 1),
                                      InputIf(center, o, scale ? 2 : 1), o.output<T>(0),
                                      o.output<float>(1), o.output<float>(2), stream),
                      "group_norm");
    });
  });
}

// x dy mean inverse [gamma] -> dx [dgamma] [dbeta]
StatusOr<std::unique_ptr<Kernel>> BindNormGradient(const BindContext& context) {
  const GroupNormShape shape = GroupNormShapeOf(context);
  const auto& attributes = context.attributes<graph::NormAttributes>();
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLaunch(
        [=, scale = attributes.scale, center = attributes.center](const Operands& o,
                                                                  cudaStream_t stream) {
          const GroupNormGradientOperands<T> operands = {
              .x = o.input<T>(0),
              .dy = o.input<T>(1),
              .mean = o.input<float>(2),
              .inverse = o.input<float>(3),
              .gamma = InputIf(scale, o, 4),
              .dx = o.output<T>(0),
              .dgamma = OutputIf(scale, o, 1),
              .dbeta = OutputIf(center, o, scale ? 2 : 1),
              .workspace = o.workspace};
          return FromCuda(LaunchGroupNormGradient(shape, operands, stream), "group_norm_gradient");
        },
        GroupNormWorkspace(shape, sizeof(T)));
  });
}

// softmax and its gradient; softmax_cross_entropy and its gradient, in float32 logits with sums in
// double, and top_k.

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
