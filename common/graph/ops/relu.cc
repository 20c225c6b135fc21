#include "common/graph/ops/relu.h"

#include <algorithm>

#include "common/graph/ops/operands.h"

namespace ringmaster::graph {

Status Relu::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_RETURN_IF_ERROR(ExpectFloating("x", inputs[0]));
  *outputs = {{inputs[0].shape, inputs[0].dtype}};
  return absl::OkStatus();
}

Status ReluGradient::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 2, 2));
  RING_RETURN_IF_ERROR(ExpectFloating("y", inputs[0]));
  RING_RETURN_IF_ERROR(ExpectSame("dy", inputs[1], inputs[0]));
  *outputs = {{inputs[0].shape, inputs[0].dtype}};
  return absl::OkStatus();
}

Gradients Relu::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  return AddOp(
      request.graph,
      {node.name + "/gradient", ReluGradient{}, {node.outputs[0], request.output_gradients[0]}});
}

void Relu::Reference(const ReferenceCall& call) {
  for (size_t i = 0; i < call.outputs[0].size(); ++i) {
    call.outputs[0][i] = std::max(call.inputs[0][i], 0.0);
  }
}

void ReluGradient::Reference(const ReferenceCall& call) {
  for (size_t i = 0; i < call.outputs[0].size(); ++i) {
    call.outputs[0][i] = call.inputs[0][i] > 0 ? call.inputs[1][i] : 0;
  }
}

}  // namespace ringmaster::graph
