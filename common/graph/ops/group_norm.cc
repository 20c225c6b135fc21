#include "common/graph/ops/group_norm.h"

#include <cmath>

#include "common/graph/ops/operands.h"

namespace ringmaster::graph {

NormSets NormSetsOf(const Node& node, const Shape& x) {
  if (const auto* group_norm = node.attributes<GroupNormAttributes>()) {
    const int64_t sample = Elements(x) / x[0];
    return {x[0], sample / x.back(), group_norm->groups, x.back() / group_norm->groups};
  }
  return {Elements(x) / x.back(), 1, 1, x.back()};
}

namespace {

Status CheckNormed(const Node& node, const TensorType& x) {
  RING_RETURN_IF_ERROR(ExpectFloating("x", x));
  if (x.shape.size() < 2) {
    return InvalidArgument("expected x with at least 2 dimensions, got {}", ToString(x.shape));
  }
  const auto* attributes = node.attributes<GroupNormAttributes>();
  if (attributes == nullptr) return absl::OkStatus();
  if (attributes->groups >= 1 && x.shape.back() % attributes->groups == 0) return absl::OkStatus();
  return InvalidArgument("{} groups do not divide {} channels", attributes->groups, x.shape.back());
}

Shape StatisticsOf(const Node& node, const Shape& x) {
  if (const auto* attributes = node.attributes<GroupNormAttributes>()) {
    return {x[0], attributes->groups};
  }
  return {x.begin(), x.end() - 1};
}

Status InferNorm(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  const auto& attributes = *node.attributes<NormAttributes>();
  const size_t count = 1 + (attributes.scale ? 1 : 0) + (attributes.center ? 1 : 0);
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, count, count));
  RING_RETURN_IF_ERROR(CheckNormed(node, inputs[0]));
  for (size_t i = 1; i < count; ++i) {
    const char* name = i == 1 && attributes.scale ? "gamma" : "beta";
    RING_RETURN_IF_ERROR(ExpectVector(name, inputs[i], inputs[0].shape.back()));
  }
  const Shape statistics = StatisticsOf(node, inputs[0].shape);
  *outputs = {{inputs[0].shape, inputs[0].dtype},
              {statistics, DType::kFloat32, "mean"},
              {statistics, DType::kFloat32, "inverse_deviation"}};
  return absl::OkStatus();
}

Status InferNormGradient(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  const auto& attributes = *node.attributes<NormAttributes>();
  const size_t count = attributes.scale ? 5 : 4;
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, count, count));
  RING_RETURN_IF_ERROR(CheckNormed(node, inputs[0]));
  RING_RETURN_IF_ERROR(ExpectSame("dy", inputs[1], inputs[0]));
  const TensorType statistics = {StatisticsOf(node, inputs[0].shape)};
  RING_RETURN_IF_ERROR(ExpectSame("mean", inputs[2], statistics));
  RING_RETURN_IF_ERROR(ExpectSame("inverse_deviation", inputs[3], statistics));
  const Shape channels = {inputs[0].shape.back()};
  if (attributes.scale) RING_RETURN_IF_ERROR(ExpectVector("gamma", inputs[4], channels[0]));
  *outputs = {{inputs[0].shape, inputs[0].dtype}};
  if (attributes.scale) outputs->push_back({channels, DType::kFloat32, "gamma"});
  if (attributes.center) outputs->push_back({channels, DType::kFloat32, "beta"});
  return absl::OkStatus();
}

// The gradients stand in the order of the operands.
template <typename GradientOp>
Gradients NormGradientOf(const GradientRequest& request, const GradientOp& gradient) {
  const Node& node = request.node;
  if (request.output_gradients[1] != kNoValue || request.output_gradients[2] != kNoValue) {
    return InvalidArgument("{}: no gradient flows through the statistics of a {}", node.name,
                           node.op());
  }
  Node made = {node.name + "/gradient",
               gradient,
               {node.inputs[0], request.output_gradients[0], node.outputs[1], node.outputs[2]}};
  if (gradient.scale) made.inputs.push_back(node.inputs[1]);
  return AddOp(request.graph, std::move(made));
}

// Calls visit(offset in x, channel) for each element of a set.
template <typename Visit>
void ForEachInSet(const NormSets& sets, int64_t set, const Visit& visit) {
  for (int64_t position = 0; position < sets.positions; ++position) {
    const int64_t first = sets.At(set, position);
    for (int64_t at = first; at < first + sets.channels; ++at) {
      visit(static_cast<size_t>(at), static_cast<size_t>(at % sets.all_channels()));
    }
  }
}

void NormReference(const ReferenceCall& call) {
  const auto& attributes = *call.node.attributes<NormAttributes>();
  const NormSets sets = NormSetsOf(call.node, call.input_shape(0));
  const auto count = static_cast<double>(sets.elements());
  const std::span<const double> x = call.inputs[0];
  for (int64_t set = 0; set < sets.sets(); ++set) {
    double sum = 0, squares = 0;
    ForEachInSet(sets, set, [&](size_t i, size_t) { sum += x[i]; });
    const double mean = sum / count;
    ForEachInSet(sets, set, [&](size_t i, size_t) { squares += (x[i] - mean) * (x[i] - mean); });
    const double inverse = 1 / std::sqrt(squares / count + attributes.epsilon);
    ForEachInSet(sets, set, [&](size_t i, size_t channel) {
      const double gamma = attributes.scale ? call.inputs[1][channel] : 1;
      const double beta = attributes.center ? call.inputs.back()[channel] : 0;
      call.outputs[0][i] = (x[i] - mean) * inverse * gamma + beta;
    });
    call.outputs[1][static_cast<size_t>(set)] = mean;
    call.outputs[2][static_cast<size_t>(set)] = inverse;
  }
}

// dx = r (g - mean(g) - n mean(g n)), g = gamma dy, n the normalized x: as of batch_norm, by set.
void NormGradientReference(const ReferenceCall& call) {
  const auto& attributes = *call.node.attributes<NormAttributes>();
  const NormSets sets = NormSetsOf(call.node, call.input_shape(0));
  const auto count = static_cast<double>(sets.elements());
  for (int64_t set = 0; set < sets.sets(); ++set) {
    const double mean = call.inputs[2][static_cast<size_t>(set)];
    const double inverse = call.inputs[3][static_cast<size_t>(set)];
    const auto normalized = [&](size_t i) { return (call.inputs[0][i] - mean) * inverse; };
    const auto scaled = [&](size_t i, size_t channel) {
      return call.inputs[1][i] * (attributes.scale ? call.inputs[4][channel] : 1);
    };
    double sum = 0, product = 0;
    ForEachInSet(sets, set, [&](size_t i, size_t channel) {
      sum += scaled(i, channel);
      product += scaled(i, channel) * normalized(i);
      if (attributes.scale) call.outputs[1][channel] += call.inputs[1][i] * normalized(i);
      if (attributes.center) call.outputs.back()[channel] += call.inputs[1][i];
    });
    ForEachInSet(sets, set, [&](size_t i, size_t channel) {
      call.outputs[0][i] =
          inverse * (scaled(i, channel) - sum / count - normalized(i) * product / count);
    });
  }
}

}  // namespace

Status GroupNorm::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  return InferNorm(node, inputs, outputs);
}
Status GroupNormGradient::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  return InferNormGradient(node, inputs, outputs);
}
Status LayerNorm::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  return InferNorm(node, inputs, outputs);
}
Status LayerNormGradient::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  return InferNormGradient(node, inputs, outputs);
}

Gradients GroupNorm::Gradient(const GradientRequest& request) {
  return NormGradientOf(request, GroupNormGradient{*request.node.as<GroupNorm>()});
}
Gradients LayerNorm::Gradient(const GradientRequest& request) {
  return NormGradientOf(request, LayerNormGradient{*request.node.as<LayerNorm>()});
}

void GroupNorm::Reference(const ReferenceCall& call) { NormReference(call); }
void GroupNormGradient::Reference(const ReferenceCall& call) { NormGradientReference(call); }
void LayerNorm::Reference(const ReferenceCall& call) { NormReference(call); }
void LayerNormGradient::Reference(const ReferenceCall& call) { NormGradientReference(call); }

}  // namespace ringmaster::graph
