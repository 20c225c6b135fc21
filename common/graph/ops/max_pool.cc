#include "common/graph/ops/max_pool.h"

#include "common/graph/ops/operands.h"
#include "common/graph/ops/window.h"

namespace ringmaster::graph {
namespace {

struct PoolGeometry {
  WindowAxis height, width;
  int64_t samples, channels;

  Shape y() const { return {samples, height.output(), width.output(), channels}; }
};

PoolGeometry MakePoolGeometry(const PoolAttributes& a, const Shape& x) {
  return {HeightAxis(a, x[1], a.window[0]), WidthAxis(a, x[2], a.window[1]), x[0], x[3]};
}

StatusOr<PoolGeometry> CheckedPoolGeometry(const Node& node, const TensorType& x) {
  const auto& attributes = *node.attributes<PoolAttributes>();
  RING_RETURN_IF_ERROR(ExpectFloating("x", x));
  RING_RETURN_IF_ERROR(ExpectRank("x(N,H,W,C)", x, 4));
  const PoolGeometry geometry = MakePoolGeometry(attributes, x.shape);
  RING_RETURN_IF_ERROR(geometry.height.Check("height"));
  RING_RETURN_IF_ERROR(geometry.width.Check("width"));
  return geometry;
}

// Offset in x of the first maximum under output position (n, p, q) of channel c.
int64_t FirstMaximum(const PoolGeometry& g, std::span<const double> x, int64_t n, int64_t p,
                     int64_t q, int64_t c) {
  int64_t best = -1;
  for (int64_t h = 0; h < g.height.window; ++h) {
    const int64_t row = g.height.at(p, h);
    if (!g.height.inside(row)) continue;
    for (int64_t w = 0; w < g.width.window; ++w) {
      const int64_t column = g.width.at(q, w);
      if (!g.width.inside(column)) continue;
      const int64_t at = ((n * g.height.input + row) * g.width.input + column) * g.channels + c;
      if (best < 0 || x[static_cast<size_t>(at)] > x[static_cast<size_t>(best)]) best = at;
    }
  }
  return best;
}

// Calls visit(x, y) with the offsets of each output element and of the input element it came from.
template <typename Visit>
void ForEachMaximum(const ReferenceCall& call, const Visit& visit) {
  const PoolGeometry g =
      MakePoolGeometry(*call.node.attributes<PoolAttributes>(), call.input_shape(0));
  size_t y = 0;
  for (int64_t n = 0; n < g.samples; ++n) {
    for (int64_t p = 0; p < g.height.output(); ++p) {
      for (int64_t q = 0; q < g.width.output(); ++q) {
        for (int64_t c = 0; c < g.channels; ++c) {
          visit(static_cast<size_t>(FirstMaximum(g, call.inputs[0], n, p, q, c)), y++);
        }
      }
    }
  }
}

}  // namespace

Status MaxPool::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_ASSIGN_OR_RETURN(const PoolGeometry geometry, CheckedPoolGeometry(node, inputs[0]));
  *outputs = {{geometry.y(), inputs[0].dtype}};
  return absl::OkStatus();
}

// x y dy -> dx.
Status MaxPoolGradient::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 3, 3));
  RING_ASSIGN_OR_RETURN(const PoolGeometry geometry, CheckedPoolGeometry(node, inputs[0]));
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
