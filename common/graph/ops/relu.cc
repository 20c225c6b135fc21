// relu and its gradient, which masks by the output: dx = dy where y > 0, else 0.
#include <algorithm>

#include "common/graph/ops/operands.h"
#include "common/graph/ops/rows.h"

namespace ringmaster::graph {
namespace {

Status ReluShape(const Node&, std::span<const TensorType> inputs,
                 std::vector<TensorType>* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_RETURN_IF_ERROR(ExpectFloating("x", inputs[0]));
  *outputs = {{inputs[0].shape, inputs[0].dtype}};
  return absl::OkStatus();
}

Status ReluGradientShape(const Node&, std::span<const TensorType> inputs,
                         std::vector<TensorType>* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 2, 2));
  RING_RETURN_IF_ERROR(ExpectFloating("y", inputs[0]));
  RING_RETURN_IF_ERROR(ExpectSame("dy", inputs[1], inputs[0]));
  *outputs = {{inputs[0].shape, inputs[0].dtype}};
  return absl::OkStatus();
}

StatusOr<std::vector<ValueId>> ReluGradient(const GradientRequest& request) {
  const Node& node = request.node;
  return AddOp(request.graph, {node.name + "/gradient",
                               "relu_gradient",
                               {node.outputs[0], request.output_gradients[0]},
                               {},
                               {}});
}

void ReluReference(const ReferenceCall& call) {
  for (size_t i = 0; i < call.outputs[0].size(); ++i) {
    call.outputs[0][i] = std::max(call.inputs[0][i], 0.0);
  }
}

void ReluGradientReference(const ReferenceCall& call) {
  for (size_t i = 0; i < call.outputs[0].size(); ++i) {
    call.outputs[0][i] = call.inputs[0][i] > 0 ? call.inputs[1][i] : 0;
  }
}

}  // namespace

constinit const Op kRelu = {.name = "relu",
                            .shape = ReluShape,
                            .gradient = ReluGradient,
                            .reference = ReluReference,
                            .storage = Storage::kInPlace};
constinit const Op kReluGradient = {.name = "relu_gradient",
                                    .shape = ReluGradientShape,
                                    .gradient = nullptr,
                                    .reference = ReluGradientReference,
                                    .storage = Storage::kInPlace,
                                    .storage_input = 1};

}  // namespace ringmaster::graph
