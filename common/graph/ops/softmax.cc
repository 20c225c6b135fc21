#include "common/graph/ops/softmax.h"

#include <algorithm>
#include <cmath>

#include "common/graph/ops/operands.h"

namespace ringmaster::graph {
namespace {

Status CheckRows(const char* what, const TensorType& type) {
  RING_RETURN_IF_ERROR(ExpectFloating(what, type));
  if (type.shape.size() >= 2) return absl::OkStatus();
  return InvalidArgument("expected {} with samples and classes, got {}", what,
                         ToString(type.shape));
}

}  // namespace

Status Softmax::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_RETURN_IF_ERROR(CheckRows("x", inputs[0]));
  *outputs = {{inputs[0].shape, inputs[0].dtype}};
  return absl::OkStatus();
}

Status SoftmaxGradient::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 2, 2));
  RING_RETURN_IF_ERROR(CheckRows("y", inputs[0]));
  RING_RETURN_IF_ERROR(ExpectSame("dy", inputs[1], inputs[0]));
  *outputs = {{inputs[0].shape, inputs[0].dtype}};
  return absl::OkStatus();
}

Gradients Softmax::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  return AddOp(
      request.graph,
      {node.name + "/gradient", SoftmaxGradient{}, {node.outputs[0], request.output_gradients[0]}});
}

void Softmax::Reference(const ReferenceCall& call) {
  const auto classes = static_cast<size_t>(call.input_shape(0).back());
  for (size_t first = 0; first < call.inputs[0].size(); first += classes) {
    const std::span<const double> x = call.inputs[0].subspan(first, classes);
    const double largest = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (size_t k = 0; k < classes; ++k) {
      sum += call.outputs[0][first + k] = std::exp(x[k] - largest);
    }
    for (size_t k = 0; k < classes; ++k) call.outputs[0][first + k] /= sum;
  }
}

void SoftmaxGradient::Reference(const ReferenceCall& call) {
  const auto classes = static_cast<size_t>(call.input_shape(0).back());
  for (size_t first = 0; first < call.inputs[0].size(); first += classes) {
    const std::span<const double> y = call.inputs[0].subspan(first, classes);
    const std::span<const double> dy = call.inputs[1].subspan(first, classes);
    double sum = 0;
    for (size_t k = 0; k < classes; ++k) sum += dy[k] * y[k];
    for (size_t k = 0; k < classes; ++k) call.outputs[0][first + k] = y[k] * (dy[k] - sum);
  }
}

}  // namespace ringmaster::graph
