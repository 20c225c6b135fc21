#include "common/graph/layers/normalization.h"

namespace ringmaster::graph::layers {
namespace {

constexpr Initializer kOne = {Initializer::Kind::kConstant, 1};

// x, gamma and beta, where they are wanted.
std::vector<ValueId> Inputs(GraphBuilder& builder, const std::string& name, ValueId x, bool scale,
                            bool center) {
  const Shape channels = {builder.shape(x).back()};
  std::vector<ValueId> inputs = {x};
  if (scale) inputs.push_back(builder.Parameter(name + "/gamma", channels, kOne));
  if (center) inputs.push_back(builder.Parameter(name + "/beta", channels, {}));
  return inputs;
}

}  // namespace

ValueId BatchNorm::Build(GraphBuilder& builder, const std::string& name, ValueId x) const {
  if (!builder.Expect(name, x)) return kNoValue;
  Normalization statistics = {
      .name = name, .channels = builder.shape(x).back(), .momentum = momentum};
  const BatchNormAttributes attributes = {
      .epsilon = epsilon, .momentum = momentum, .scale = scale, .center = center};
  const auto made =
      builder.AddAll(name, graph::BatchNorm{attributes}, Inputs(builder, name, x, scale, center));
  statistics.batch_mean = made[1];
  statistics.batch_variance = made[2];
  builder.Statistic(std::move(statistics));
  return made[0];
}

ValueId GroupNorm::Build(GraphBuilder& builder, const std::string& name, ValueId x) const {
  if (!builder.Expect(name, x)) return kNoValue;
  graph::GroupNorm op;
  op.epsilon = epsilon;
  op.scale = scale;
  op.center = center;
  op.groups = groups;
  return builder.Add(name, op, Inputs(builder, name, x, scale, center));
}

ValueId LayerNorm::Build(GraphBuilder& builder, const std::string& name, ValueId x) const {
  if (!builder.Expect(name, x)) return kNoValue;
  graph::LayerNorm op;
  op.epsilon = epsilon;
  op.scale = scale;
  op.center = center;
  return builder.Add(name, op, Inputs(builder, name, x, scale, center));
}

}  // namespace ringmaster::graph::layers
