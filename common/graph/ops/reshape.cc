#include "common/graph/ops/reshape.h"

#include <algorithm>

#include "common/graph/ops/operands.h"

namespace ringmaster::graph {

Status Reshape::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_ASSIGN_OR_RETURN(const Shape wanted, WantedShape(*outputs));
  if (Elements(wanted) != Elements(inputs[0].shape)) {
    return InvalidArgument("{} has {} elements, {} has {}", ToString(inputs[0].shape),
                           Elements(inputs[0].shape), ToString(wanted), Elements(wanted));
  }
  *outputs = {{wanted, inputs[0].dtype}};
  return absl::OkStatus();
}

Gradients Reshape::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  const Shape x = request.graph->value(node.inputs[0]).shape;
  return AddOp(request.graph, {node.name + "/gradient", Reshape{}, {request.output_gradients[0]}},
               {{x}});
}

void Reshape::Reference(const ReferenceCall& call) {
  std::copy(call.inputs[0].begin(), call.inputs[0].end(), call.outputs[0].begin());
}

}  // namespace ringmaster::graph
