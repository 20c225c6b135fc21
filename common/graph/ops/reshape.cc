// reshape: the same elements in the same order under another shape; the same bytes in memory.
#include <algorithm>

#include "common/graph/ops/operands.h"
#include "common/graph/ops/rows.h"

namespace ringmaster::graph {
namespace {

Status ReshapeShape(const Node&, std::span<const TensorType> inputs,
                    std::vector<TensorType>* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_ASSIGN_OR_RETURN(const Shape wanted, WantedShape(*outputs));
  if (Elements(wanted) != Elements(inputs[0].shape)) {
    return InvalidArgument("{} has {} elements, {} has {}", ToString(inputs[0].shape),
                           Elements(inputs[0].shape), ToString(wanted), Elements(wanted));
  }
  *outputs = {{wanted, inputs[0].dtype}};
  return absl::OkStatus();
}

StatusOr<std::vector<ValueId>> ReshapeGradient(const GradientRequest& request) {
  const Node& node = request.node;
  const Shape x = request.graph->value(node.inputs[0]).shape;
  return AddOp(request.graph,
               {node.name + "/gradient", "reshape", {request.output_gradients[0]}, {}, {}}, {{x}});
}

void ReshapeReference(const ReferenceCall& call) {
  std::copy(call.inputs[0].begin(), call.inputs[0].end(), call.outputs[0].begin());
}

}  // namespace

constinit const Op kReshape = {.name = "reshape",
                               .shape = ReshapeShape,
                               .gradient = ReshapeGradient,
                               .reference = ReshapeReference,
                               .storage = Storage::kAlias};

}  // namespace ringmaster::graph
