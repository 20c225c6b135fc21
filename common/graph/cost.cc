#include "common/graph/cost.h"

namespace ringmaster::graph {
namespace {

constexpr double kOperationsPerByte = 8;

double MultiplyAddsOf(const Shape& y, const Shape& kernel, size_t filters_axis) {
  const int64_t window = Elements(kernel) / kernel[filters_axis];
  return static_cast<double>(Elements(y)) * static_cast<double>(window);
}

double Bytes(const Value& value) {
  return static_cast<double>(Elements(value.shape)) * static_cast<double>(ByteSize(value.dtype));
}

}  // namespace

double MultiplyAdds(const Graph& graph, const Node& node) {
  const auto input = [&](size_t i) -> const Shape& { return graph.value(node.inputs[i]).shape; };
  const Shape& output = graph.value(node.outputs[0]).shape;
  constexpr size_t kConv2dFilters = 0, kDenseUnits = 1;
  if (node.as<Conv2d>()) return MultiplyAddsOf(output, input(1), kConv2dFilters);
  if (node.as<Conv2dInputGradient>()) return MultiplyAddsOf(input(0), input(1), kConv2dFilters);
  if (node.as<Conv2dWeightGradient>()) return MultiplyAddsOf(input(1), output, kConv2dFilters);
  if (node.as<Dense>()) return MultiplyAddsOf(output, input(1), kDenseUnits);
  if (node.as<DenseInputGradient>()) return MultiplyAddsOf(input(0), input(1), kDenseUnits);
  if (node.as<DenseWeightGradient>()) return MultiplyAddsOf(input(1), output, kDenseUnits);
  return 0;
}

double Operations(const Graph& graph, const Node& node) {
  if (TraitsOf(node.kind).storage == Storage::kAlias) return 0;
  double bytes = 0;
  for (const ValueId input : node.inputs) bytes += Bytes(graph.value(input));
  for (const ValueId output : node.outputs) bytes += Bytes(graph.value(output));
  return 2 * MultiplyAdds(graph, node) + kOperationsPerByte * bytes;
}

double Operations(const Graph& graph) {
  double operations = 0;
  for (const Node& node : graph.nodes()) operations += Operations(graph, node);
  return operations;
}

}  // namespace ringmaster::graph
