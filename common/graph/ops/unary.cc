#include "common/graph/ops/unary.h"

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

Status Cast::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_RETURN_IF_ERROR(ExpectFloating("x", inputs[0]));
  if (outputs->size() != 1) return InvalidArgument("expected the wanted type of its output");
  const TensorType wanted = {inputs[0].shape, outputs->front().dtype};
  RING_RETURN_IF_ERROR(ExpectFloating("y", wanted));
  *outputs = {wanted};
  return absl::OkStatus();
}

Gradients Cast::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  const DType dtype = request.graph->value(node.inputs[0]).dtype;
  return AddOp(request.graph, {node.name + "/gradient", Cast{}, {request.output_gradients[0]}},
               {{{}, dtype}});
}

// The executor rounds each value to its type when it is asked to.
void Cast::Reference(const ReferenceCall& call) {
  std::copy(call.inputs[0].begin(), call.inputs[0].end(), call.outputs[0].begin());
}

}  // namespace ringmaster::graph
