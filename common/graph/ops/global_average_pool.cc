#include "common/graph/ops/global_average_pool.h"

#include "common/graph/ops/operands.h"

namespace ringmaster::graph {
namespace {

// Calls visit(x, y) with the offsets of each element of the (N,H,W,C) tensor and of its channel's
// mean in the (N,C) tensor.
template <typename Visit>
void ForEachElement(const Shape& x, const Visit& visit) {
  const int64_t image = x[1] * x[2] * x[3];
  for (int64_t i = 0; i < x[0] * image; ++i) {
    visit(static_cast<size_t>(i), static_cast<size_t>(i / image * x[3] + i % x[3]));
  }
}

}  // namespace

Status GlobalAveragePool::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_RETURN_IF_ERROR(ExpectFloating("x", inputs[0]));
  RING_RETURN_IF_ERROR(ExpectRank("x(N,H,W,C)", inputs[0], 4));
  const int64_t samples = inputs[0].shape[0], channels = inputs[0].shape[3];
  const bool keep_dims = node.as<GlobalAveragePool>()->keep_dims;
  *outputs = {
      {keep_dims ? Shape{samples, 1, 1, channels} : Shape{samples, channels}, inputs[0].dtype}};
  return absl::OkStatus();
}

// dy -> dx of the wanted shape.
Status GlobalAveragePoolGradient::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_ASSIGN_OR_RETURN(const Shape wanted, WantedShape(*outputs));
  const TensorType x = {wanted, inputs[0].dtype};
  RING_RETURN_IF_ERROR(ExpectRank("dx(N,H,W,C)", x, 4));
  if (inputs[0].shape != Shape{wanted[0], 1, 1, wanted[3]}) {
    RING_RETURN_IF_ERROR(ExpectShape("dy", inputs[0], {wanted[0], wanted[3]}));
  }
  *outputs = {x};
  return absl::OkStatus();
}

Gradients GlobalAveragePool::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  const Shape x = request.graph->value(node.inputs[0]).shape;
  return AddOp(
      request.graph,
      {node.name + "/gradient", GlobalAveragePoolGradient{}, {request.output_gradients[0]}}, {{x}});
}

void GlobalAveragePool::Reference(const ReferenceCall& call) {
  const Shape& x = call.input_shape(0);
  ForEachElement(x, [&](size_t i, size_t mean) { call.outputs[0][mean] += call.inputs[0][i]; });
  for (double& mean : call.outputs[0]) mean /= static_cast<double>(x[1] * x[2]);
}

void GlobalAveragePoolGradient::Reference(const ReferenceCall& call) {
  const Shape& x = call.output_shape(0);
  const auto count = static_cast<double>(x[1] * x[2]);
  ForEachElement(x,
                 [&](size_t i, size_t mean) { call.outputs[0][i] = call.inputs[0][mean] / count; });
}

}  // namespace ringmaster::graph
