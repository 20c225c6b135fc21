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
void ForEachMaximum(const ReferenceCall& call, const Visit& visit) {
  const PoolGeometry g =
      MakePoolGeometry(*call.node.attributes<PoolAttributes>(), call.input_shape(0));
  g.ForEachOutput([&](int64_t n, int64_t p, int64_t q, int64_t c, size_t y) {
    visit(FirstMaximum(g, call.inputs[0], n, p, q, c), y);
  });
}

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
  ForEachMaximum(call, [&](size_t x, size_t y) { call.outputs[0][y] = call.inputs[0][x]; });
}

void MaxPoolGradient::Reference(const ReferenceCall& call) {
  ForEachMaximum(call, [&](size_t x, size_t y) { call.outputs[0][x] += call.inputs[2][y]; });
}

}  // namespace ringmaster::graph
