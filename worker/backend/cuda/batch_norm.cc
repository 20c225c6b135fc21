// batch_norm over all axes but the last, its gradient, and inference; fused with its relu.
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/kernel_table.h"
#include "worker/backend/cuda/kernels/normalization.h"

namespace ringmaster::cuda {
namespace {

BatchNormShape NormShapeOf(const BindContext& context) {
  const auto& attributes = context.attributes<graph::BatchNormAttributes>();
  const graph::Shape& x = context.input(0).shape;
  return {graph::Elements(x) / x.back(), x.back(), static_cast<float>(attributes.epsilon),
          attributes.activation == graph::Activation::kRelu, attributes.residual};
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
  shape.relu = shape.residual = false;
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

// x dy mean variance [gamma] [beta, with relu] -> dx [dgamma] [dbeta], or with a residual
// x dy mean variance gamma beta y [more_dy] -> dx dgamma dbeta dresidual
StatusOr<std::unique_ptr<Kernel>> BindBatchNormGradient(const BindContext& context) {
  const BatchNormShape shape = NormShapeOf(context);
  const NormPlaces gradients = PlacesIn(context, 1);
  const NormPlaces at = PlacesIn(context, 4);
  const size_t beta = shape.relu ? at.beta : 0;
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

}  // namespace ringmaster::cuda
