#include "worker/backend/pjrt/emit/emitter.h"

namespace ringmaster::pjrt {
namespace {

void EmitPairwise(EmitContext& context, std::string_view op) {
  Builder& builder = context.builder();
  const graph::Shape& shape = context.output(0).shape;
  context.Out(0, builder.Binary(op, builder.OverLast(context.Wide(0), shape),
                                builder.OverLast(context.Wide(1), shape)));
}

}  // namespace

void EmitAdd(EmitContext& context) { EmitPairwise(context, "add"); }

void EmitMultiply(EmitContext& context) { EmitPairwise(context, "multiply"); }

void EmitReduceTo(EmitContext& context) {
  Builder& builder = context.builder();
  const graph::Shape &x = context.input(0).shape, &y = context.output(0).shape;
  const size_t ahead = x.size() - y.size();
  std::vector<int64_t> axes;
  for (size_t axis = 0; axis < x.size(); ++axis) {
    if (axis < ahead || y[axis - ahead] != x[axis]) axes.push_back(static_cast<int64_t>(axis));
  }
  context.Out(0, builder.Reshape(builder.Reduce(Fold::kAdd, context.Wide(0), axes), y));
}

}  // namespace ringmaster::pjrt
