#include "common/graph/ops/reduce_to.h"

#include "common/graph/ops/broadcast_rules.h"

namespace ringmaster::graph {

StatusOr<OpOutputs> BroadcastTypes(OpInputs inputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 2, 2));
  RING_RETURN_IF_ERROR(ExpectFloating("a", inputs[0]));
  RING_RETURN_IF_ERROR(ExpectType("b", inputs[1], inputs[0].dtype));
  RING_ASSIGN_OR_RETURN(Shape shape, BroadcastShape(inputs[0].shape, inputs[1].shape));
  return OpOutputs{{std::move(shape), inputs[0].dtype}};
}

StatusOr<ValueId> ReducedTo(const GradientRequest& request, size_t i, ValueId gradient) {
  const Graph& graph = *request.graph;
  const Shape wanted = graph.value(request.node.inputs[i]).shape;
  if (wanted == graph.value(gradient).shape) return gradient;
  Node node = {request.node.name + (i == 0 ? "/reduce_a" : "/reduce_b"), ReduceTo{}, {gradient}};
  RING_ASSIGN_OR_RETURN(const auto made, AddOp(request.graph, std::move(node), {{wanted}}));
  return made[0];
}

Status ReduceTo::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_RETURN_IF_ERROR(ExpectFloating("x", inputs[0]));
  RING_ASSIGN_OR_RETURN(const Shape wanted, WantedShape(*outputs));
  const auto together = BroadcastShape(inputs[0].shape, wanted);
  if (!together.ok() || *together != inputs[0].shape) {
    return InvalidArgument("{} is not what {} could be broadcast to", ToString(inputs[0].shape),
                           ToString(wanted));
  }
  const bool parameter = wanted.size() < inputs[0].shape.size();
  *outputs = {{wanted, parameter ? DType::kFloat32 : inputs[0].dtype}};
  return absl::OkStatus();
}

void ReduceTo::Reference(const ReferenceCall& call) {
  const BroadcastAxes axes(call.input_shape(0), call.output_shape(0));
  for (size_t i = 0; i < call.inputs[0].size(); ++i) {
    call.outputs[0][static_cast<size_t>(axes.At(static_cast<int64_t>(i))[1])] += call.inputs[0][i];
  }
}

}  // namespace ringmaster::graph
