// dense and its gradients: products of operands as they are stored, added up in float32.
#include "worker/backend/pjrt/emit/emitter.h"

namespace ringmaster::pjrt {

void EmitDense(EmitContext& context) {
  Builder& builder = context.builder();
  Tensor y = builder.Dot(context.In(0), context.In(1), 1, 0);
  if (context.node().inputs.size() == 3) {
    y = builder.Add(y, builder.OverLast(context.In(2), y.shape));
  }
  if (context.attributes<graph::DenseAttributes>().activation == graph::Activation::kRelu) {
    y = builder.Binary("maximum", y, builder.Constant(0, y.shape));
  }
  context.Out(0, y);
}

void EmitDenseInputGradient(EmitContext& context) {
  context.Out(0, context.builder().Dot(context.In(0), context.In(1), 1, 1));
}

void EmitDenseWeightGradient(EmitContext& context) {
  Builder& builder = context.builder();
  context.Out(0, builder.Dot(context.In(0), context.In(1), 0, 0));
  if (context.node().outputs.size() == 1) return;
  context.Out(1, builder.Reduce(Fold::kAdd, context.Wide(1), {0}));
}

}  // namespace ringmaster::pjrt
