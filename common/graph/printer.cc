#include "common/graph/printer.h"

#include <fmt/format.h>

namespace ringmaster::graph {
namespace {

std::string Typed(const Value& value) {
  return fmt::format("{} {} {}", value.name, ToString(value.shape), Name(value.dtype));
}

const char* ActivationSuffix(Activation activation) {
  return activation == Activation::kRelu ? " +relu" : "";
}

// Window geometry that convolution and pooling share; nothing for what is at its default.
template <typename Window>
std::string Geometry(const Window& window, int64_t default_stride) {
  std::string text;
  if (window.stride_height != default_stride || window.stride_width != default_stride) {
    text += fmt::format(" stride={}x{}", window.stride_height, window.stride_width);
  }
  if (window.pad_top + window.pad_bottom + window.pad_left + window.pad_right > 0) {
    text += fmt::format(" pad={},{},{},{}", window.pad_top, window.pad_bottom, window.pad_left,
                        window.pad_right);
  }
  return text;
}

struct AttributePrinter {
  std::string operator()(const std::monostate&) const { return ""; }
  std::string operator()(const Conv2dAttributes& conv) const {
    return Geometry(conv, 1) + ActivationSuffix(conv.activation);
  }
  std::string operator()(const DenseAttributes& dense) const {
    return ActivationSuffix(dense.activation);
  }
  std::string operator()(const PoolAttributes& pool) const {
    return fmt::format(" window={}x{}", pool.window_height, pool.window_width) + Geometry(pool, 2);
  }
  std::string operator()(const BatchNormAttributes& norm) const {
    return fmt::format(" epsilon={}", norm.epsilon) + ActivationSuffix(norm.activation);
  }
  std::string operator()(const DropoutAttributes& dropout) const {
    return fmt::format(" rate={} layer={}", dropout.rate, dropout.layer);
  }
};

std::string PrintNode(const Graph& graph, const Node& node) {
  std::string line;
  for (ValueId output : node.outputs) {
    line += (line.empty() ? "" : ", ") + Typed(graph.value(output));
  }
  line += " = " + node.op + "(";
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    line += (i == 0 ? "" : ", ") + graph.value(node.inputs[i]).name;
  }
  return line + ")" + std::visit(AttributePrinter{}, node.attributes);
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
