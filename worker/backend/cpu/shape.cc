#include <cstring>

#include "common/graph/ops/shape.h"
#include "worker/backend/cpu/kernel.h"
#include "worker/backend/cpu/parallel.h"

namespace ringmaster::cpu {

// concat, split, slice and pad: rows of bytes that lie side by side in both tensors, whatever their
// type.
StatusOr<std::unique_ptr<Kernel>> BindBoxes(BindContext& context) {
  const auto element = static_cast<int64_t>(graph::ByteSize(context.output(0).dtype));
  const size_t zeros =
      context.node.as<graph::Pad>() == nullptr
          ? 0
          : static_cast<size_t>(element * graph::Elements(context.output(0).shape));
  return MakeLoop([=, threads = context.threads,
                   transfers = graph::TransfersOf(context.program.graph, context.node)](
                      const Operands& operands, const RunKeys&) {
    if (zeros > 0) std::memset(operands.output<std::byte>(0), 0, zeros);
    for (const graph::BoxTransfer& transfer : transfers) {
      const auto* x = operands.input<std::byte>(transfer.input);
      auto* y = operands.output<std::byte>(transfer.output);
      ParallelFor(threads, transfer.copy.rows(), [&](int64_t row) {
        const auto [from, to] = transfer.copy.At(row);
        std::memcpy(y + to * element, x + from * element,
                    static_cast<size_t>(transfer.copy.row() * element));
      });
    }
  });
}

// reshape: the same elements; nothing to do where the plan lets output and input share their bytes.
StatusOr<std::unique_ptr<Kernel>> BindReshape(BindContext& context) {
  const graph::Value& y = context.output(0);
  const size_t bytes = static_cast<size_t>(graph::Elements(y.shape)) * graph::ByteSize(y.dtype);
  return MakeLoop([bytes](const Operands& operands, const RunKeys&) {
    if (operands.inputs[0] != operands.outputs[0]) {
      std::memcpy(operands.outputs[0], operands.inputs[0], bytes);
    }
  });
}

}  // namespace ringmaster::cpu
