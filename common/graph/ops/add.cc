#include "common/graph/ops/add.h"

#include "common/graph/ops/operands.h"

namespace ringmaster::graph {

Status Add::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 2, 2));
  RING_RETURN_IF_ERROR(ExpectFloating("a", inputs[0]));
  RING_RETURN_IF_ERROR(ExpectSame("b", inputs[1], inputs[0]));
  *outputs = {{inputs[0].shape, inputs[0].dtype}};
  return absl::OkStatus();
}

Gradients Add::Gradient(const GradientRequest& request) {
  return std::vector<ValueId>(2, request.output_gradients[0]);
}

void Add::Reference(const ReferenceCall& call) {
  for (size_t i = 0; i < call.outputs[0].size(); ++i) {
    call.outputs[0][i] = call.inputs[0][i] + call.inputs[1][i];
  }
}

}  // namespace ringmaster::graph
