#include "common/graph/ops/dropout.h"

#include "common/graph/ops/operands.h"
#include "common/numeric/philox.h"

namespace ringmaster::graph {
namespace {

Status CheckOperands(const DropoutAttributes& dropout, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_RETURN_IF_ERROR(ExpectFloating("x", inputs[0]));
  if (!(dropout.rate >= 0 && dropout.rate < 1)) {
    return InvalidArgument("rate must be in [0, 1), got {}", dropout.rate);
  }
  if (inputs[0].shape.empty()) return InvalidArgument("expected x with samples, got a scalar");
  *outputs = {{inputs[0].shape, inputs[0].dtype}};
  return absl::OkStatus();
}

// The mask is linear, so that one kernel serves both directions.
void Mask(const DropoutAttributes& dropout, const ReferenceCall& call) {
  const auto rows = static_cast<size_t>(call.input_shape(0)[0]);
  const size_t row_elements = call.inputs[0].size() / rows;
  for (size_t row = 0; row < rows; ++row) {
    const PhiloxStream stream(call.keys.seed, PhiloxStream::Purpose::kDropout, call.keys.step,
                              call.keys.samples[row], dropout.layer);
    for (size_t e = 0; e < row_elements; ++e) {
      const bool keep =
          static_cast<double>(stream.Uniform(dropout.per_sample ? 0 : e)) >= dropout.rate;
      const size_t at = row * row_elements + e;
      call.outputs[0][at] = keep ? call.inputs[0][at] / (1 - dropout.rate) : 0;
    }
  }
}

}  // namespace

Status Dropout::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  return CheckOperands(*node.as<Dropout>(), inputs, outputs);
}

Status DropoutGradient::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  return CheckOperands(*node.as<DropoutGradient>(), inputs, outputs);
}

Gradients Dropout::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  return AddOp(request.graph, {node.name + "/gradient",
                               DropoutGradient{*node.as<Dropout>()},
                               {request.output_gradients[0]}});
}

void Dropout::Reference(const ReferenceCall& call) { Mask(*call.node.as<Dropout>(), call); }

void DropoutGradient::Reference(const ReferenceCall& call) {
  Mask(*call.node.as<DropoutGradient>(), call);
}

}  // namespace ringmaster::graph
