// The losses and measures over pairs and their gradients, from the formulas of
// common/graph/ops/pair_loss.h in packets of float32. Elements are added in double, in their order,
// whatever the thread count.
#include "common/graph/ops/pair_loss.h"

#include "worker/backend/cpu/kernel.h"
#include "worker/backend/cpu/packet.h"
#include "worker/backend/cpu/parallel.h"

namespace ringmaster::cpu {
namespace {

struct Pairs {
  int64_t samples, elements;  // elements: of each sample
  int threads;

  int64_t count() const { return samples * elements; }
};

template <typename Op>
LoopKernel::Body LossBody(const Op& op, const Pairs& pairs) {
  return [=](const Operands& operands, const RunKeys&) {
    const float* p = operands.input<float>(0);
    const float* t = operands.input<float>(1);
    auto* values = reinterpret_cast<float*>(operands.workspace);
    ParallelPieces(pairs.threads, pairs.count(), kElementPiece, [=](int64_t first, int64_t last) {
      MapPackets(
          last - first, [&](Packet p, Packet t) { return op.Value(p, t); }, values + first,
          p + first, t + first);
    });
    double sum = 0;
    for (int64_t n = 0; n < pairs.samples; ++n) {
      double sample = 0;
      for (int64_t i = 0; i < pairs.elements; ++i) {
        sample += static_cast<double>(values[n * pairs.elements + i]);
      }
      sum += sample / static_cast<double>(pairs.elements);
    }
    *operands.output<float>(0) = static_cast<float>(sum);
  };
}

template <typename Op>
LoopKernel::Body SlopeBody(const Op& op, const Pairs& pairs) {
  return [=](const Operands& operands, const RunKeys&) {
    const float* p = operands.input<float>(0);
    const float* t = operands.input<float>(1);
    float* dp = operands.output<float>(0);
    const double seed = *operands.input<float>(2);
    const Packet scale(seed / static_cast<double>(pairs.elements));
    ParallelPieces(pairs.threads, pairs.count(), kElementPiece, [=](int64_t first, int64_t last) {
      MapPackets(
          last - first, [&](Packet p, Packet t) { return op.Slope(p, t) * scale; }, dp + first,
          p + first, t + first);
    });
  };
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindPairLoss(BindContext& context) {
  const graph::Shape& shape = context.input(0).shape;
  const Pairs pairs = {shape[0], graph::Elements(shape) / shape[0], context.threads};
  return std::visit(
      [&]<typename Op>(const Op& op) -> std::unique_ptr<Kernel> {
        if constexpr (graph::PairLossOp<Op>) {
          return MakeLoop(LossBody(op, pairs), sizeof(float) * static_cast<size_t>(pairs.count()));
        } else if constexpr (graph::PairLossGradientOp<Op>) {
          return MakeLoop(SlopeBody(op, pairs));
        } else {
          return nullptr;  // the table gives this function to no other op
        }
      },
      context.node.kind);
}

}  // namespace ringmaster::cpu
