// batch_norm over all axes but the last, its gradient, and inference. Sums of our own rather than
// StableHLO's ops for it: those know no rows that are no samples, no relu and no residual, and
// their variance need not be of deviations, which does not cancel.
#include "common/graph/ops/unary.h"
#include "worker/backend/pjrt/emit/emitter.h"
#include "worker/backend/pjrt/emit/number.h"

namespace ringmaster::pjrt {
namespace {

const graph::BatchNormAttributes& AttributesOf(const EmitContext& context) {
  return context.attributes<graph::BatchNormAttributes>();
}

using graph::Activation;

Tensor SumOfRows(Builder& builder, const Tensor& x) {
  std::vector<int64_t> axes;
  for (size_t axis = 0; axis + 1 < x.shape.size(); ++axis) {
    axes.push_back(static_cast<int64_t>(axis));
  }
  return builder.Reduce(Fold::kAdd, x, axes);
}

// How many rows of channels are summed, over the channels.
Tensor CountOfRows(EmitContext& context) {
  const graph::Shape& x = context.input(0).shape;
  const int64_t positions = graph::Elements(x) / x[0] / x.back();
  return context.builder().Fill(context.SampleCount(positions), {x.back()});
}

// 1 / sqrt(variance + epsilon)
Tensor InverseDeviation(EmitContext& context, const Tensor& variance) {
  Builder& builder = context.builder();
  const Tensor epsilon = builder.Constant(AttributesOf(context).epsilon, variance.shape);
  const Tensor deviation = builder.Unary("sqrt", builder.Add(variance, epsilon));
  return builder.Divide(builder.Constant(1, variance.shape), deviation);
}

// gamma / sqrt(variance + epsilon), gamma being operand i where there is one.
Tensor ScaleOf(EmitContext& context, size_t i, const Tensor& variance) {
  const Tensor inverse = InverseDeviation(context, variance);
  if (!AttributesOf(context).scale) return inverse;
  return context.builder().Multiply(context.In(i), inverse);
}

Tensor DeviationFrom(Builder& builder, const Tensor& x, const Tensor& mean) {
  return builder.Subtract(x, builder.OverLast(mean, x.shape));
}

// What x, of that deviation from its mean, becomes before the activation: the same ops wherever it
// is asked for. beta is operand i where there is one that is read.
Tensor Scaled(EmitContext& context, const Tensor& deviation, const Tensor& scale, size_t i) {
  Builder& builder = context.builder();
  const Tensor scaled = builder.Multiply(deviation, builder.OverLast(scale, deviation.shape));
  if (!AttributesOf(context).center) return scaled;
  return builder.Add(scaled, builder.OverLast(context.In(i), deviation.shape));
}

// y of what lies before the activation.
Tensor Activated(EmitContext& context, const Tensor& z) {
  Builder& builder = context.builder();
  const auto above = [&](const Tensor& x) {
    return builder.Binary("maximum", x, builder.Constant(0, x.shape));
  };
  switch (AttributesOf(context).activation) {
    case Activation::kRelu:
      return above(z);
    case Activation::kRelu6:
      return above(builder.Binary("minimum", z, builder.Constant(6, z.shape)));
    case Activation::kSwish:
      return graph::Swish{}.Forward(Number(&builder, z)).Over(builder, z.shape);
    case Activation::kNone:
      break;
  }
  return z;
}

// y from x's deviation; the residual is the last operand.
void Normalize(EmitContext& context, const Tensor& deviation, const Tensor& variance) {
  Builder& builder = context.builder();
  const size_t beta = AttributesOf(context).scale ? 2 : 1;
  Tensor y = Scaled(context, deviation, ScaleOf(context, 1, variance), beta);
  if (AttributesOf(context).residual) {
    y = builder.Add(y, context.Wide(context.node().inputs.size() - 1));
  }
  context.Out(0, Activated(context, y));
}

// What of dy, which may come as two addends, passes the activation. With a residual y is read, else
// what lies before it is computed once more: a swish's slope is taken there, and a relu's is
// compared with what its type stores as a bound, so that no compiler's shortcut round a rounding
// matters.
Tensor Passed(EmitContext& context, const Tensor& deviation, const Tensor& scale) {
  Builder& builder = context.builder();
  Tensor dy = context.Wide(1);
  if (context.node().inputs.size() == 8) dy = builder.Add(dy, context.Wide(7));
  const Activation activation = AttributesOf(context).activation;
  if (activation == Activation::kNone) return dy;
  const bool residual = AttributesOf(context).residual;
  const size_t beta = AttributesOf(context).scale ? 5 : 4;
  const Tensor y = residual ? context.Wide(6) : Scaled(context, deviation, scale, beta);
  if (activation == Activation::kSwish) {
    return graph::Swish{}
        .Backward(Number(&builder, y), Number(&builder, dy))
        .Over(builder, y.shape);
  }
  const auto stop = [&](const char* at, float bound) {
    dy = builder.Select(builder.Compare(at, y, builder.Constant(double{bound}, y.shape)),
                        builder.Constant(0, y.shape), dy);
  };
  const graph::DType stored = context.output(0).dtype;
  stop("LE", residual ? 0 : graph::RoundsToZero(stored));
  if (activation == Activation::kRelu6) stop("GE", graph::RoundsToSix(stored));
  return dy;
}

}  // namespace

void EmitBatchNorm(EmitContext& context) {
  Builder& builder = context.builder();
  const Tensor x = context.Wide(0), count = CountOfRows(context);
  const Tensor mean = builder.Divide(SumOfRows(builder, context.OnlySamples(x)), count);
  const Tensor deviation = DeviationFrom(builder, x, mean);
  const Tensor squares = context.OnlySamples(builder.Multiply(deviation, deviation));
  const Tensor variance = builder.Divide(SumOfRows(builder, squares), count);
  context.Out(1, mean);
  context.Out(2, variance);
  Normalize(context, deviation, variance);
}

void EmitBatchNormInference(EmitContext& context) {
  const auto& attributes = AttributesOf(context);
  const size_t mean = 1 + (attributes.scale ? 1 : 0) + (attributes.center ? 1 : 0);
  const Tensor deviation = DeviationFrom(context.builder(), context.Wide(0), context.In(mean));
  Normalize(context, deviation, context.In(mean + 1));
}

void EmitBatchNormInferenceGradient(EmitContext& context) {
  Builder& builder = context.builder();
  const Tensor scale = ScaleOf(context, 1, context.In(AttributesOf(context).scale ? 2 : 1));
  const Tensor dy = context.Wide(0);
  context.Out(0, builder.Multiply(dy, builder.OverLast(scale, dy.shape)));
}

// dgamma = sum(dy (x - mean)) r, dbeta = sum(dy), and, r = 1 / sqrt(variance + epsilon),
//   dx = gamma r (dy - dbeta / n - (x - mean) r dgamma / n).
void EmitBatchNormGradient(EmitContext& context) {
  Builder& builder = context.builder();
  const auto& attributes = AttributesOf(context);
  const Tensor& variance = context.In(3);
  const Tensor inverse = InverseDeviation(context, variance), count = CountOfRows(context);
  const Tensor scale = ScaleOf(context, 4, variance);
  const Tensor deviation = DeviationFrom(builder, context.Wide(0), context.In(2));
  const Tensor dy = context.OnlySamples(Passed(context, deviation, scale));
  const Tensor dbeta = SumOfRows(builder, dy);
  // Deviations of rows that are no samples meet a 0.
  const Tensor dgamma =
      builder.Multiply(SumOfRows(builder, builder.Multiply(dy, deviation)), inverse);
  if (attributes.scale) context.Out(1, dgamma);
  if (attributes.center) context.Out(attributes.scale ? 2 : 1, dbeta);
  if (attributes.residual) context.Out(3, dy);

  const auto over = [&](const Tensor& channels) { return builder.OverLast(channels, dy.shape); };
  const Tensor offset = builder.Divide(dbeta, count);
  const Tensor slope = builder.Divide(builder.Multiply(dgamma, inverse), count);
  const Tensor inner = builder.Subtract(builder.Subtract(dy, over(offset)),
                                        builder.Multiply(deviation, over(slope)));
  context.Out(0, context.OnlySamples(builder.Multiply(inner, over(scale))));
}

}  // namespace ringmaster::pjrt
