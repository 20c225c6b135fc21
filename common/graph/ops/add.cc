// add: a + b, element by element; what gradients that meet become.
#include "common/graph/ops/operands.h"
#include "common/graph/ops/rows.h"

namespace ringmaster::graph {
namespace {

Status AddShape(const Node&, std::span<const TensorType> inputs, std::vector<TensorType>* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 2, 2));
  RING_RETURN_IF_ERROR(ExpectFloating("a", inputs[0]));
  RING_RETURN_IF_ERROR(ExpectSame("b", inputs[1], inputs[0]));
  *outputs = {{inputs[0].shape, inputs[0].dtype}};
  return absl::OkStatus();
}

StatusOr<std::vector<ValueId>> AddGradient(const GradientRequest& request) {
  return std::vector<ValueId>(2, request.output_gradients[0]);
}

void AddReference(const ReferenceCall& call) {
  for (size_t i = 0; i < call.outputs[0].size(); ++i) {
    call.outputs[0][i] = call.inputs[0][i] + call.inputs[1][i];
  }
}

}  // namespace

constinit const Op kAdd = {
    .name = "add", .shape = AddShape, .gradient = AddGradient, .reference = AddReference};

}  // namespace ringmaster::graph
