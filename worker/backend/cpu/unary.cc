// The elementwise family and its gradients, from the formulas of common/graph/ops/unary.h in
// packets of float32.
#include "common/graph/ops/unary.h"

#include "worker/backend/cpu/kernel_table.h"
#include "worker/backend/cpu/packet.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/storage.h"

namespace ringmaster::cpu {
namespace {

template <typename Op, typename T>
LoopKernel::Body ForwardBody(const Op& op, int64_t count, int threads) {
  return [=](const Operands& operands, const RunKeys&) {
    const T* x = operands.input<T>(0);
    T* y = operands.output<T>(0);
    ParallelPieces(threads, count, kElementPiece, [=](int64_t first, int64_t last) {
      MapPackets(
          last - first, [&](Packet x) { return op.Forward(x); }, y + first, x + first);
    });
  };
}

template <typename Op, typename T>
LoopKernel::Body BackwardBody(const Op& op, int64_t count, int threads) {
  return [=](const Operands& operands, const RunKeys&) {
    // Where the formula reads one of x and y both are that one.
    const T* x = operands.input<T>(0);
    const T* y = operands.input<T>(Op::kDy - 1);
    const T* dy = operands.input<T>(Op::kDy);
    T* dx = operands.output<T>(0);
    ParallelPieces(threads, count, kElementPiece, [=](int64_t first, int64_t last) {
      if constexpr (Op::kReads == graph::Reads::kBoth) {
        const auto backward = [&](Packet x, Packet y, Packet dy) { return op.Backward(x, y, dy); };
        MapPackets(last - first, backward, dx + first, x + first, y + first, dy + first);
      } else {
        const auto backward = [&](Packet x, Packet dy) { return op.Backward(x, x, dy); };
        MapPackets(last - first, backward, dx + first, x + first, dy + first);
      }
    });
  };
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindUnary(BindContext& context) {
  const graph::Value& y = context.output(0);
  const int64_t count = graph::Elements(y.shape);
  return WithStorage(y.dtype, [&]<typename T>(T) {
    return std::visit(
        [&]<typename Op>(const Op& op) -> std::unique_ptr<Kernel> {
          if constexpr (graph::UnaryOp<Op>) {
            return MakeLoop(ForwardBody<Op, T>(op, count, context.threads));
          } else if constexpr (graph::UnaryGradientOp<Op>) {
            return MakeLoop(BackwardBody<Op, T>(op, count, context.threads));
          } else {
            return nullptr;  // the table gives this function to no other op
          }
        },
        context.node.kind);
  });
}

}  // namespace ringmaster::cpu
