#include "common/graph/ops/average_pool.h"

#include "common/graph/ops/pool_geometry.h"

namespace ringmaster::graph {
namespace {

// Calls visit(x, y, count) with the offsets of each output element and of each element of its
// window, of which there are `count`.
template <typename Visit>
void ForEachAveraged(const PoolGeometry& g, const Visit& visit) {
  g.ForEachOutput([&](int64_t n, int64_t p, int64_t q, int64_t c, size_t y) {
    double count = 0;
    g.ForEachPosition(n, p, q, c, [&](size_t) { ++count; });
    g.ForEachPosition(n, p, q, c, [&](size_t x) { visit(x, y, count); });
  });
}

}  // namespace

Status AveragePool::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_ASSIGN_OR_RETURN(const PoolGeometry geometry,
                        CheckedPoolGeometry(*node.attributes<PoolAttributes>(), inputs[0]));
  *outputs = {{geometry.y(), inputs[0].dtype}};
  return absl::OkStatus();
}

Status AveragePoolGradient::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_ASSIGN_OR_RETURN(const Shape wanted, WantedShape(*outputs));
  const TensorType x = {wanted, inputs[0].dtype};
  RING_ASSIGN_OR_RETURN(const PoolGeometry geometry,
                        CheckedPoolGeometry(*node.attributes<PoolAttributes>(), x));
  RING_RETURN_IF_ERROR(ExpectShape("dy", inputs[0], geometry.y()));
  *outputs = {x};
  return absl::OkStatus();
}

Gradients AveragePool::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  const Shape x = request.graph->value(node.inputs[0]).shape;
  return AddOp(request.graph,
               {node.name + "/gradient",
                AveragePoolGradient{*node.attributes<PoolAttributes>()},
                {request.output_gradients[0]}},
               {{x}});
}

void AveragePool::Reference(const ReferenceCall& call) {
  const auto g = MakePoolGeometry(*call.node.attributes<PoolAttributes>(), call.input_shape(0));
  ForEachAveraged(g, [&](size_t x, size_t y, double count) {
    call.outputs[0][y] += call.inputs[0][x] / count;
  });
}

void AveragePoolGradient::Reference(const ReferenceCall& call) {
  const auto g = MakePoolGeometry(*call.node.attributes<PoolAttributes>(), call.output_shape(0));
  ForEachAveraged(g, [&](size_t x, size_t y, double count) {
    call.outputs[0][x] += call.inputs[0][y] / count;
  });
}

}  // namespace ringmaster::graph
