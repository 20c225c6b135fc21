// softmax over the last axis and its gradient; losses and measures of classes. All of them move
// rows by their maximum, so that nothing overflows, and a loss does not lose a small difference.
#include "worker/backend/pjrt/emit/emitter.h"

namespace ringmaster::pjrt {
namespace {

// A number for each row over all of its classes.
Tensor OverClasses(Builder& builder, const Tensor& rows, const graph::Shape& shape) {
  std::vector<int64_t> axes;
  for (size_t axis = 0; axis < rows.shape.size(); ++axis) {
    axes.push_back(static_cast<int64_t>(axis));
  }
  return builder.Broadcast(rows, shape, axes);
}

Tensor SumOfClasses(Builder& builder, const Tensor& x) {
  return builder.Reduce(Fold::kAdd, x, {static_cast<int64_t>(x.shape.size()) - 1});
}

struct Exponentials {
  Tensor moved, powers, sum;  // x - max(x), its exp, and the sum of that by row
};

Exponentials ExponentialsOf(Builder& builder, const Tensor& x) {
  const int64_t last = static_cast<int64_t>(x.shape.size()) - 1;
  const Tensor largest = builder.Reduce(Fold::kMaximum, x, {last});
  const Tensor moved = builder.Subtract(x, OverClasses(builder, largest, x.shape));
  const Tensor powers = builder.Unary("exponential", moved);
  return {moved, powers, SumOfClasses(builder, powers)};
}

// Where the class is the row's label.
Tensor IsLabel(Builder& builder, const Tensor& labels, const graph::Shape& shape) {
  const Tensor classes = builder.Iota(1, shape, ElementKind::kInt32);
  return builder.Compare("EQ", OverClasses(builder, labels, shape), classes);
}

// What a target gives: scalars for the label and for the next row's, a number for every class.
struct Target {
  Tensor label;
  std::optional<Tensor> next;
  double each;

  Target(EmitContext& context, size_t others)
      : label(context.builder().Constant(1 - Smoothing(context))),
        each(Smoothing(context) / static_cast<double>(context.input(0).shape[1])) {
    if (context.node().inputs.size() == others) return;
    Builder& builder = context.builder();
    const Tensor whole = label, share = context.In(others);
    label = builder.Multiply(whole, share);
    next = builder.Multiply(whole, builder.Subtract(builder.Constant(1), share));
  }

  static double Smoothing(const EmitContext& context) {
    return context.attributes<graph::SoftmaxCrossEntropyAttributes>().label_smoothing;
  }
};

}  // namespace

void EmitSoftmax(EmitContext& context) {
  Builder& builder = context.builder();
  const Exponentials e = ExponentialsOf(builder, context.Wide(0));
  context.Out(0, builder.Divide(e.powers, OverClasses(builder, e.sum, e.powers.shape)));
}

void EmitSoftmaxGradient(EmitContext& context) {
  Builder& builder = context.builder();
  const Tensor y = context.Wide(0), dy = context.Wide(1);
  const Tensor sum = SumOfClasses(builder, builder.Multiply(y, dy));
  context.Out(0, builder.Multiply(y, builder.Subtract(dy, OverClasses(builder, sum, y.shape))));
}

// The target adds up to 1, so that moving the logits of a row moves nothing.
void EmitSoftmaxCrossEntropy(EmitContext& context) {
  Builder& builder = context.builder();
  const graph::Shape& shape = context.input(0).shape;
  const Target target(context, 2);
  const Exponentials e = ExponentialsOf(builder, context.In(0));
  const graph::Shape rows = {shape[0]};
  const auto expected = [&](const Tensor& weight, const Tensor& labels) {
    const Tensor own =
        builder.Select(IsLabel(builder, labels, shape), e.moved, builder.Constant(0, shape));
    return builder.Multiply(SumOfClasses(builder, own), builder.Fill(weight, rows));
  };
  Tensor losses =
      builder.Subtract(builder.Unary("log", e.sum), expected(target.label, context.In(1)));
  if (target.next) {
    losses = builder.Subtract(losses, expected(*target.next, context.NextRow(context.In(1))));
  }
  if (target.each != 0) {
    const Tensor all = SumOfClasses(builder, e.moved);
    losses = builder.Subtract(losses, builder.Multiply(all, builder.Constant(target.each, rows)));
  }
  context.Out(0, builder.Reduce(Fold::kAdd, context.OnlySamples(losses), {0}));
}

void EmitSoftmaxCrossEntropyGradient(EmitContext& context) {
  Builder& builder = context.builder();
  const graph::Shape& shape = context.input(0).shape;
  const Target target(context, 3);
  const Exponentials e = ExponentialsOf(builder, context.In(0));
  Tensor difference = builder.Divide(e.powers, OverClasses(builder, e.sum, shape));
  if (target.each != 0) {
    difference = builder.Subtract(difference, builder.Constant(target.each, shape));
  }
  const auto subtract = [&](const Tensor& weight, const Tensor& labels) {
    const Tensor wanted = builder.Select(IsLabel(builder, labels, shape),
                                         builder.Fill(weight, shape), builder.Constant(0, shape));
    difference = builder.Subtract(difference, wanted);
  };
  subtract(target.label, context.In(1));
  if (target.next) subtract(*target.next, context.NextRow(context.In(1)));
  const Tensor seed = builder.Fill(context.In(2), shape);
  context.Out(0, context.OnlySamples(builder.Multiply(difference, seed)));
}

void EmitTopK(EmitContext& context) {
  Builder& builder = context.builder();
  const Tensor logits = context.In(0), labels = context.In(1);
  const graph::Shape& shape = logits.shape;
  const Tensor zero = builder.Constant(0, shape), one = builder.Constant(1, shape);
  const Tensor own =
      SumOfClasses(builder, builder.Select(IsLabel(builder, labels, shape), logits, zero));
  const Tensor owns = OverClasses(builder, own, shape);
  // Those that are larger, and of lower classes those that are equal. Nothing is either to a NaN.
  const Tensor classes = builder.Iota(1, shape, ElementKind::kInt32);
  const Tensor lower = builder.Compare("LT", classes, OverClasses(builder, labels, shape));
  const Tensor ties = builder.Select(builder.Compare("EQ", logits, owns), one, zero);
  const Tensor front =
      builder.Select(builder.Compare("GT", logits, owns), one, builder.Select(lower, ties, zero));
  const Tensor before = SumOfClasses(builder, front);
  const auto most = static_cast<double>(context.attributes<graph::TopK>().k);
  const Tensor none = builder.Constant(0, own.shape), hit = builder.Constant(1, own.shape);
  const Tensor few =
      builder.Select(builder.Compare("LT", before, builder.Constant(most, own.shape)), hit, none);
  const Tensor hits = builder.Select(builder.Compare("EQ", own, own), few, none);
  context.Out(0, builder.Reduce(Fold::kAdd, context.OnlySamples(hits), {0}));
}

}  // namespace ringmaster::pjrt
