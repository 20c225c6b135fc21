// The losses and measures over pairs and their gradients, from the formulas of
// common/graph/ops/pair_loss.h.
#include "common/graph/ops/pair_loss.h"

#include <variant>

#include "worker/backend/pjrt/emit/emitter.h"
#include "worker/backend/pjrt/emit/number.h"

namespace ringmaster::pjrt {

void EmitPairLoss(EmitContext& context) {
  Builder& builder = context.builder();
  const graph::Shape& shape = context.input(0).shape;
  const auto elements = static_cast<double>(graph::Elements(shape) / shape[0]);
  const Number p(&builder, context.In(0)), t(&builder, context.In(1));
  std::visit(
      [&]<typename Op>(const Op& op) {
        // The table gives this function to no other op.
        if constexpr (graph::PairLossOp<Op>) {
          std::vector<int64_t> inner;  // axes of a sample
          for (size_t axis = 1; axis < shape.size(); ++axis) {
            inner.push_back(static_cast<int64_t>(axis));
          }
          const Tensor sums =
              builder.Reduce(Fold::kAdd, op.Value(p, t).Over(builder, shape), inner);
          const Tensor means = builder.Divide(sums, builder.Constant(elements, sums.shape));
          context.Out(0, builder.Reduce(Fold::kAdd, context.OnlySamples(means), {0}));
        } else if constexpr (graph::PairLossGradientOp<Op>) {
          const Tensor scale = builder.Divide(context.In(2), builder.Constant(elements));
          const Tensor slope = op.Slope(p, t).Over(builder, shape);
          context.Out(0, context.OnlySamples(builder.Multiply(slope, builder.Fill(scale, shape))));
        }
      },
      context.node().kind);
}

}  // namespace ringmaster::pjrt
