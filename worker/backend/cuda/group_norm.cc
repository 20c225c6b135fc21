// group_norm, layer_norm and their gradients.
#include "common/graph/ops/group_norm.h"

#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/kernel_table.h"
#include "worker/backend/cuda/kernels/normalization.h"

namespace ringmaster::cuda {
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

}  // namespace ringmaster::cuda
