// dropout, y = x keep / (1 - rate), and its gradient by the same mask. The mask is drawn from
// (seed, step, sample, layer) and the element's index inside its sample: see DropoutAttributes.
#include "common/graph/ops/operands.h"
#include "common/graph/ops/rows.h"
#include "common/philox.h"

namespace ringmaster::graph {
namespace {

Status DropoutShape(const Node& node, std::span<const TensorType> inputs,
                    std::vector<TensorType>* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_RETURN_IF_ERROR(ExpectFloating("x", inputs[0]));
  RING_ASSIGN_OR_RETURN(const auto attributes, AttributesOf<DropoutAttributes>(node));
  if (!(attributes.rate >= 0 && attributes.rate < 1)) {
    return InvalidArgument("rate must be in [0, 1), got {}", attributes.rate);
  }
  if (inputs[0].shape.empty()) return InvalidArgument("expected x with samples, got a scalar");
  *outputs = {{inputs[0].shape, inputs[0].dtype}};
  return absl::OkStatus();
}

StatusOr<std::vector<ValueId>> DropoutGradient(const GradientRequest& request) {
  const Node& node = request.node;
  return AddOp(request.graph, {node.name + "/gradient",
                               "dropout_gradient",
                               {request.output_gradients[0]},
                               {},
                               node.attributes});
}

// The mask is linear, so that one kernel serves both directions.
void DropoutReference(const ReferenceCall& call) {
  const auto& attributes = std::get<DropoutAttributes>(call.node.attributes);
  const auto rows = static_cast<size_t>(call.input_shape(0)[0]);
  const size_t row_elements = call.inputs[0].size() / rows;
  for (size_t row = 0; row < rows; ++row) {
    const PhiloxStream stream(call.keys.seed, PhiloxStream::Purpose::kDropout, call.keys.step,
                              call.keys.samples[row], attributes.layer);
    for (size_t e = 0; e < row_elements; ++e) {
      const bool keep = static_cast<double>(stream.Uniform(e)) >= attributes.rate;
      const size_t at = row * row_elements + e;
      call.outputs[0][at] = keep ? call.inputs[0][at] / (1 - attributes.rate) : 0;
    }
  }
}

}  // namespace

constinit const Op kDropout = {.name = "dropout",
                               .shape = DropoutShape,
                               .gradient = DropoutGradient,
                               .reference = DropoutReference,
                               .storage = Storage::kInPlace};
constinit const Op kDropoutGradient = {.name = "dropout_gradient",
                                       .shape = DropoutShape,
                                       .gradient = nullptr,
                                       .reference = DropoutReference,
                                       .storage = Storage::kInPlace};

}  // namespace ringmaster::graph
