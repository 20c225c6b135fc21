// group_norm, layer_norm and their gradients. Elements stay in x's own shape: a device that stores
// tiles would make much of one that has groups as an axis. A group's sums are of its channels'.
#include "common/graph/ops/group_norm.h"

#include <numeric>

#include "worker/backend/pjrt/emit/emitter.h"

namespace ringmaster::pjrt {
namespace {

class SetsEmission {
 public:
  explicit SetsEmission(EmitContext& context)
      : context_(context),
        builder_(context.builder()),
        sets_(graph::NormSetsOf(context.node(), context.input(0).shape)),
        grouped_(context.node().attributes<graph::GroupNormAttributes>() != nullptr),
        shape_(context.input(0).shape) {}

  // Operand i, which has a number for each channel, over the elements.
  [[nodiscard]] Tensor Channels(size_t i) { return builder_.OverLast(context_.In(i), shape_); }

  // Of each set: a number for each row, or for each sample and group.
  [[nodiscard]] Tensor Mean(const Tensor& elements) {
    const auto last = static_cast<int64_t>(shape_.size()) - 1;
    Tensor sum =
        builder_.Reduce(Fold::kAdd, elements, grouped_ ? Axes(1, last) : Axes(last, last + 1));
    if (grouped_) {
      sum = builder_.Reshape(sum, {sets_.samples, sets_.groups, sets_.channels});
      sum = builder_.Reduce(Fold::kAdd, sum, {2});
    }
    const auto count = static_cast<double>(sets_.elements());
    return builder_.Divide(sum, builder_.Constant(count, sum.shape));
  }
  // Such a number over its set's elements.
  [[nodiscard]] Tensor OverElements(const Tensor& statistic) {
    const auto last = static_cast<int64_t>(shape_.size()) - 1;
    if (!grouped_) return builder_.Broadcast(statistic, shape_, Axes(0, last));
    const Tensor channels =
        builder_.Broadcast(statistic, {sets_.samples, sets_.groups, sets_.channels}, {0, 1});
    return builder_.Broadcast(builder_.Reshape(channels, {sets_.samples, shape_.back()}), shape_,
                              {0, last});
  }
  // What a channel has in all sets.
  [[nodiscard]] Tensor SumByChannel(const Tensor& elements) {
    return builder_.Reduce(Fold::kAdd, elements, Axes(0, static_cast<int64_t>(shape_.size()) - 1));
  }

 private:
  static std::vector<int64_t> Axes(int64_t first, int64_t end) {
    std::vector<int64_t> axes(static_cast<size_t>(end - first));
    std::iota(axes.begin(), axes.end(), first);
    return axes;
  }

  EmitContext& context_;
  Builder& builder_;
  const graph::NormSets sets_;
  const bool grouped_;
  const graph::Shape shape_;
};

}  // namespace

void EmitNorm(EmitContext& context) {
  Builder& builder = context.builder();
  SetsEmission sets(context);
  const auto& attributes = context.attributes<graph::NormAttributes>();
  const Tensor x = context.Wide(0), mean = sets.Mean(x);
  const Tensor deviation = builder.Subtract(x, sets.OverElements(mean));
  const Tensor variance = sets.Mean(builder.Multiply(deviation, deviation));
  const Tensor epsilon = builder.Constant(attributes.epsilon, variance.shape);
  const Tensor inverse = builder.Divide(builder.Constant(1, variance.shape),
                                        builder.Unary("sqrt", builder.Add(variance, epsilon)));
  Tensor y = builder.Multiply(deviation, sets.OverElements(inverse));
  if (attributes.scale) y = builder.Multiply(y, sets.Channels(1));
  if (attributes.center) y = builder.Add(y, sets.Channels(attributes.scale ? 2 : 1));
  context.Out(0, y);
  context.Out(1, mean);
  context.Out(2, inverse);
}

// dx = r (g - mean(g) - n mean(g n)), g = gamma dy, n the normalized x.
void EmitNormGradient(EmitContext& context) {
  Builder& builder = context.builder();
  SetsEmission sets(context);
  const auto& attributes = context.attributes<graph::NormAttributes>();
  const Tensor dy = context.Wide(1), inverse = sets.OverElements(context.In(3));
  const Tensor deviation = builder.Subtract(context.Wide(0), sets.OverElements(context.In(2)));
  const Tensor normalized = builder.Multiply(deviation, inverse);
  const Tensor scaled = attributes.scale ? builder.Multiply(dy, sets.Channels(4)) : dy;
  const Tensor offset = sets.OverElements(sets.Mean(scaled));
  const Tensor slope = sets.OverElements(sets.Mean(builder.Multiply(scaled, normalized)));
  const Tensor inner =
      builder.Subtract(builder.Subtract(scaled, offset), builder.Multiply(normalized, slope));
  context.Out(0, builder.Multiply(inner, inverse));
  if (attributes.scale) context.Out(1, sets.SumByChannel(builder.Multiply(dy, normalized)));
  if (attributes.center) context.Out(attributes.scale ? 2 : 1, sets.SumByChannel(dy));
}

}  // namespace ringmaster::pjrt
