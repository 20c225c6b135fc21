#include "common/graph/ops/unary.h"

#include <variant>

#include "worker/backend/pjrt/emit/emitter.h"
#include "worker/backend/pjrt/emit/number.h"

namespace ringmaster::pjrt {

// relu and its gradient, which masks by the output. NaN passes, so that it reaches the loss.
void EmitRelu(EmitContext& context) {
  Builder& builder = context.builder();
  const Tensor& x = context.In(0);  // a maximum rounds nothing
  context.Out(0, builder.Binary("maximum", x, builder.Constant(0, x.shape, x.element)));
}

void EmitReluGradient(EmitContext& context) {
  Builder& builder = context.builder();
  const Tensor& y = context.In(0);
  const Tensor zero = builder.Constant(0, y.shape, y.element);
  context.Out(0, builder.Select(builder.Compare("LE", y, zero), zero, context.In(1)));
}

void EmitCast(EmitContext& context) { context.Out(0, context.Wide(0)); }

// The elementwise family and its gradients, from the formulas of common/graph/ops/unary.h.
void EmitUnary(EmitContext& context) {
  Builder& builder = context.builder();
  const auto number = [&](size_t i) { return Number(&builder, context.Wide(i)); };
  std::visit(
      [&]<typename Op>(const Op& op) {
        // The table gives this function to no other op.
        if constexpr (graph::UnaryOp<Op>) {
          context.Out(0, op.Forward(number(0)).Over(builder, context.output(0).shape));
        } else if constexpr (graph::UnaryGradientOp<Op>) {
          // Where the formula reads one of x and y both are that one.
          const Number x = number(0), y = Op::kDy == 2 ? number(1) : x;
          context.Out(0, op.Backward(x, y, number(Op::kDy)).Over(builder, context.output(0).shape));
        }
      },
      context.node().kind);
}

}  // namespace ringmaster::pjrt
