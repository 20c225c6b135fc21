#include "common/graph/ops/max_pool.h"

#include <optional>

#include "common/graph/ops/pool_geometry.h"

namespace ringmaster::graph {
namespace {

// Offset in x of the first maximum under output position (n, p, q) of channel c.
size_t FirstMaximum(const PoolGeometry& g, std::span<const double> x, int64_t n, int64_t p,
                    int64_t q, int64_t c) {
  std::optional<size_t> best;
  g.ForEachPosition(n, p, q, c, [&](size_t at) {
    if (!best || x[at] > x[*best]) best = at;
  });
  return *best;
}

// Calls visit(x, y) with the offsets of each output element and of the input element it came from.
template <typename Visit>
void ForEachMaximum(const ReferenceCall& call, const PoolAttributes& attributes,
                    const Visit& visit) {
  const PoolGeometry g = MakePoolGeometry(attributes, call.input_shape(0));
  g.ForEachOutput([&](int64_t n, int64_t p, int64_t q, int64_t c, size_t y) {
    visit(FirstMaximum(g, call.inputs[0], n, p, q, c), y);
  });
}

// One window: the image.
PoolAttributes WholeImage(const Shape& x) { return {{x[1], x[2]}, {x[1], x[2]}}; }

}  // namespace

Status MaxPool::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_ASSIGN_OR_RETURN(const PoolGeometry geometry,
                        CheckedPoolGeometry(*node.attributes<PoolAttributes>(), inputs[0]));
  *outputs = {{geometry.y(), inputs[0].dtype}};
  return absl::OkStatus();
}

// x y dy -> dx.
Status MaxPoolGradient::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 3, 3));
  RING_ASSIGN_OR_RETURN(const PoolGeometry geometry,
                        CheckedPoolGeometry(*node.attributes<PoolAttributes>(), inputs[0]));
  const TensorType y = {geometry.y(), inputs[0].dtype};
  RING_RETURN_IF_ERROR(ExpectSame("y", inputs[1], y));
  RING_RETURN_IF_ERROR(ExpectSame("dy", inputs[2], y));
  *outputs = {{inputs[0].shape, inputs[0].dtype}};
  return absl::OkStatus();
}

Gradients MaxPool::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  return AddOp(request.graph, {node.name + "/gradient",
                               MaxPoolGradient{*node.attributes<PoolAttributes>()},
                               {node.inputs[0], node.outputs[0], request.output_gradients[0]}});
}

void MaxPool::Reference(const ReferenceCall& call) {
  ForEachMaximum(call, *call.node.attributes<PoolAttributes>(),
                 [&](size_t x, size_t y) { call.outputs[0][y] = call.inputs[0][x]; });
}

void MaxPoolGradient::Reference(const ReferenceCall& call) {
  ForEachMaximum(call, *call.node.attributes<PoolAttributes>(),
                 [&](size_t x, size_t y) { call.outputs[0][x] += call.inputs[2][y]; });
}

Status GlobalMaxPool::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_RETURN_IF_ERROR(ExpectFloating("x", inputs[0]));
  RING_RETURN_IF_ERROR(ExpectRank("x(N,H,W,C)", inputs[0], 4));
  const int64_t samples = inputs[0].shape[0], channels = inputs[0].shape[3];
  const bool keep_dims = node.as<GlobalMaxPool>()->keep_dims;
  *outputs = {
      {keep_dims ? Shape{samples, 1, 1, channels} : Shape{samples, channels}, inputs[0].dtype}};
  return absl::OkStatus();
}

// That of the max_pool over the whole image, which knows dimensions that were kept.
Gradients GlobalMaxPool::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  const Shape x = request.graph->value(node.inputs[0]).shape;
  ValueId pooled[] = {node.outputs[0], request.output_gradients[0]};
  if (!node.as<GlobalMaxPool>()->keep_dims) {
    for (ValueId& value : pooled) {
      const char* suffix = value == node.outputs[0] ? "/gradient/y" : "/gradient/dy";
      RING_ASSIGN_OR_RETURN(
          const auto made,
          AddOp(request.graph, {node.name + suffix, Reshape{}, {value}}, {{{x[0], 1, 1, x[3]}}}));
      value = made[0];
    }
  }
  return AddOp(request.graph, {node.name + "/gradient",
                               MaxPoolGradient{WholeImage(x)},
                               {node.inputs[0], pooled[0], pooled[1]}});
}

void GlobalMaxPool::Reference(const ReferenceCall& call) {
  ForEachMaximum(call, WholeImage(call.input_shape(0)),
                 [&](size_t x, size_t y) { call.outputs[0][y] = call.inputs[0][x]; });
}

}  // namespace ringmaster::graph
