// The losses and measures over pairs and their gradients.
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel_table.h"
#include "worker/backend/cuda/kernels/elementwise.h"

namespace ringmaster::cuda {

StatusOr<std::unique_ptr<Kernel>> BindPairLoss(const BindContext& context) {
  const graph::Shape& shape = context.input(0).shape;
  const PairCount count = {shape[0], graph::Elements(shape) / shape[0]};
  const graph::Kind& kind = context.node.kind;
  if (context.node.inputs.size() == 3) {
    return MakeLaunch([kind, count](const Operands& o, cudaStream_t stream) {
      return FromCuda(LaunchPairLossGradient(kind, count, o.input<float>(0), o.input<float>(1),
                                             o.input<float>(2), o.output<float>(0), stream),
                      graph::TraitsOf(kind).name);
    });
  }
  return MakeLaunch(
      [kind, count](const Operands& o, cudaStream_t stream) {
        return FromCuda(LaunchPairLoss(kind, count, o.input<float>(0), o.input<float>(1),
                                       o.output<float>(0), o.workspace, stream),
                        graph::TraitsOf(kind).name);
      },
      PairLossWorkspace(count));
}

}  // namespace ringmaster::cuda
