#include "common/graph/printer.h"

#include <fmt/format.h>

namespace ringmaster::graph {
namespace {

std::string Typed(const Value& value) {
  return fmt::format("{} {} {}", value.name, ToString(value.shape), Name(value.dtype));
}

// What a model says of the op, where it is not the default, and what passes added.
template <typename Op>
std::string PrintAttributes(const Op& op) {
  std::string text;
  if constexpr (requires { Op::Fields(); }) text += PrintFields(op);
  if constexpr (requires { op.layer; }) text += fmt::format(" layer={}", op.layer);
  if constexpr (requires { op.residual; }) {
    if (op.residual) text += " +residual";
  }
  if constexpr (requires { op.activation; }) {
    if (op.activation != Activation::kNone) text += fmt::format(" +{}", Name(op.activation));
  }
  return text;
}

std::string PrintNode(const Graph& graph, const Node& node) {
  std::string line;
  for (ValueId output : node.outputs) {
    line += (line.empty() ? "" : ", ") + Typed(graph.value(output));
  }
  line += fmt::format(" = {}(", node.op());
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    line += (i == 0 ? "" : ", ") + graph.value(node.inputs[i]).name;
  }
  return line + (node.float32 ? ") float32" : ")") +
         std::visit([](const auto& op) { return PrintAttributes(op); }, node.kind);
}

}  // namespace

std::string Print(const Graph& graph) {
  std::string text;
  for (const Node& node : graph.nodes()) text += PrintNode(graph, node) + "\n";
  return text;
}

std::string Print(const Program& program) {
  std::string text;
  for (const Value& value : program.graph.values()) {
    if (value.producer == kFed) text += "fed " + Typed(value) + "\n";
  }
  text += Print(program.graph);
  for (uint32_t number : program.gradient_order) {
    const Parameter& parameter = program.parameters[number];
    text += fmt::format("gradient {} = {}\n", parameter.name,
                        program.graph.value(parameter.gradient).name);
  }
  return text;
}

}  // namespace ringmaster::graph
