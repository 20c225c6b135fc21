#include "common/graph/ops/broadcast.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/kernel_table.h"
#include "worker/backend/cuda/kernels/nested_axes.h"

namespace ringmaster::cuda {

// add and multiply: y = a + b and y = a b, element by element.

namespace {

NestedAxes OperandAxes(const BindContext& context) {
  NestedAxes nested;
  const graph::BroadcastAxes axes(context.input(0).shape, context.input(1).shape);
  for (const graph::BroadcastAxis& axis : axes.axes()) {
    nested.Append({axis.extent, {axis.strides[0], axis.strides[1]}});
  }
  return nested;
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindAdd(const BindContext& context) {
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([axes = OperandAxes(context)](const Operands& operands, cudaStream_t stream) {
      return FromCuda(LaunchAdd(axes, operands.input<T>(0), operands.input<T>(1),
                                operands.output<T>(0), stream),
                      "add");
    });
  });
}

StatusOr<std::unique_ptr<Kernel>> BindMultiply(const BindContext& context) {
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([axes = OperandAxes(context)](const Operands& operands, cudaStream_t stream) {
      return FromCuda(LaunchMultiply(axes, operands.input<T>(0), operands.input<T>(1),
                                     operands.output<T>(0), stream),
                      "multiply");
    });
  });
}

// reduce_to: sums of x over the axes along which y would be broadcast.

namespace {

Reduction ReductionOf(const BindContext& context) {
  Reduction reduction;
  const graph::BroadcastAxes axes(context.input(0).shape, context.output(0).shape);
  for (const graph::BroadcastAxis& axis : axes.axes()) {
    NestedAxes& part = axis.strides[1] == 0 ? reduction.summed : reduction.kept;
    part.Append({axis.extent, {axis.strides[0], 0}});
  }
  return reduction;
}

template <typename T, typename To>
std::unique_ptr<Kernel> MakeReduceTo(const Reduction& reduction) {
  return MakeLaunch(
      [reduction](const Operands& operands, cudaStream_t stream) {
        return FromCuda(LaunchReduceTo(reduction, operands.input<T>(0), operands.output<To>(0),
                                       operands.workspace, stream),
                        "reduce_to");
      },
      ReduceToWorkspace<T>(reduction));
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindReduceTo(const BindContext& context) {
  const Reduction reduction = ReductionOf(context);
  const bool widens = context.output(0).dtype == graph::DType::kFloat32;
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return widens ? MakeReduceTo<T, float>(reduction) : MakeReduceTo<T, T>(reduction);
  });
}

}  // namespace ringmaster::cuda
