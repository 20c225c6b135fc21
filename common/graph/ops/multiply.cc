#include "common/graph/ops/multiply.h"

#include "common/graph/ops/broadcast.h"

namespace ringmaster::graph {

Status Multiply::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_ASSIGN_OR_RETURN(*outputs, BroadcastTypes(inputs));
  return absl::OkStatus();
}

// da = dy b and db = dy a, each summed over what it was broadcast along.
Gradients Multiply::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  std::vector<ValueId> gradients(2, kNoValue);
  for (size_t i = 0; i < 2; ++i) {
    if (!request.wanted[i]) continue;
    RING_ASSIGN_OR_RETURN(
        const auto product,
        AddOp(request.graph, {node.name + (i == 0 ? "/a_gradient" : "/b_gradient"),
                              Multiply{},
                              {request.output_gradients[0], node.inputs[1 - i]}}));
    RING_ASSIGN_OR_RETURN(gradients[i], ReducedTo(request, i, product[0]));
  }
  return gradients;
}

void Multiply::Reference(const ReferenceCall& call) {
  const BroadcastAxes axes(call.input_shape(0), call.input_shape(1));
  for (size_t i = 0; i < call.outputs[0].size(); ++i) {
    const auto [a, b] = axes.At(static_cast<int64_t>(i));
    call.outputs[0][i] =
        call.inputs[0][static_cast<size_t>(a)] * call.inputs[1][static_cast<size_t>(b)];
  }
}

}  // namespace ringmaster::graph
