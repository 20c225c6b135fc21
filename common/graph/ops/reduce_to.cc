#include "common/graph/ops/reduce_to.h"

#include "common/graph/ops/broadcast.h"
#include "common/graph/ops/operands.h"

namespace ringmaster::graph {

Status ReduceTo::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_RETURN_IF_ERROR(ExpectFloating("x", inputs[0]));
  RING_ASSIGN_OR_RETURN(const Shape wanted, WantedShape(*outputs));
  const auto together = BroadcastShape(inputs[0].shape, wanted);
  if (!together.ok() || *together != inputs[0].shape) {
    return InvalidArgument("{} is not what {} could be broadcast to", ToString(inputs[0].shape),
                           ToString(wanted));
  }
  const bool parameter = wanted.size() < inputs[0].shape.size();
  *outputs = {{wanted, parameter ? DType::kFloat32 : inputs[0].dtype}};
  return absl::OkStatus();
}

void ReduceTo::Reference(const ReferenceCall& call) {
  const BroadcastAxes axes(call.input_shape(0), call.output_shape(0));
  for (size_t i = 0; i < call.inputs[0].size(); ++i) {
    call.outputs[0][static_cast<size_t>(axes.At(static_cast<int64_t>(i))[1])] += call.inputs[0][i];
  }
}

}  // namespace ringmaster::graph
