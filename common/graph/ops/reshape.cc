#include "common/graph/ops/reshape.h"

#include <algorithm>

#include "common/graph/ops/operands.h"

namespace ringmaster::graph {
namespace {

Shape ShapeOfModel(const Node& node, const TensorType& x) {
  Shape shape = node.as<Reshape>()->shape;
  shape.insert(shape.begin(), x.shape.empty() ? 1 : x.shape[0]);
  return shape;
}

// INVALID_ARGUMENT when an extent is below 1, or the product of all cannot be counted.
Status CheckExtents(const Shape& shape) {
  int64_t room = int64_t{1} << 62;
  for (const int64_t extent : shape) {
    if (extent < 1 || extent > room) {
      return InvalidArgument("a shape with an extent of {}, below 1 or too large", extent);
    }
    room /= extent;
  }
  return absl::OkStatus();
}

}  // namespace

Status Reshape::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  Shape wanted = ShapeOfModel(node, inputs[0]);
  if (!outputs->empty()) {
    RING_ASSIGN_OR_RETURN(wanted, WantedShape(*outputs));
  }
  RING_RETURN_IF_ERROR(CheckExtents(wanted));
  if (Elements(wanted) != Elements(inputs[0].shape)) {
    return InvalidArgument("{} has {} elements, {} has {}", ToString(inputs[0].shape),
                           Elements(inputs[0].shape), ToString(wanted), Elements(wanted));
  }
  *outputs = {{wanted, inputs[0].dtype}};
  return absl::OkStatus();
}

Gradients Reshape::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  const Shape x = request.graph->value(node.inputs[0]).shape;
  return AddOp(request.graph, {node.name + "/gradient", Reshape{}, {request.output_gradients[0]}},
               {{x}});
}

void Reshape::Reference(const ReferenceCall& call) {
  std::copy(call.inputs[0].begin(), call.inputs[0].end(), call.outputs[0].begin());
}

}  // namespace ringmaster::graph
