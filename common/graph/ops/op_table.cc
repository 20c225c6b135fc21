#include "common/graph/ops/op_table.h"

#include <utility>

#include "common/graph/ops/pair_loss_rules.h"
#include "common/graph/ops/unary_rules.h"

namespace ringmaster::graph {
namespace {

template <typename Rules>
constexpr Op MakeRow(const OpTraits& traits) {
  Op row = {traits, Rules::InferTypes, nullptr, Rules::Reference};
  if constexpr (requires { &Rules::Gradient; }) row.gradient = Rules::Gradient;
  return row;
}

template <typename T>
constexpr Op RowOf() {
  if constexpr (UnaryOp<T>) {
    return MakeRow<UnaryRules<T>>(T::kTraits);
  } else if constexpr (UnaryGradientOp<T>) {
    return MakeRow<UnaryGradientRules<typename T::Of>>(T::kTraits);
  } else if constexpr (PairLossOp<T>) {
    Op row = MakeRow<PairLossRules<T>>(T::kTraits);
    if constexpr (PairLossWithSlope<T>) row.gradient = PairLossGradientOf<T>;
    return row;
  } else if constexpr (PairLossGradientOp<T>) {
    return MakeRow<PairLossGradientRules<typename T::LossOf>>(T::kTraits);
  } else {
    return MakeRow<T>(T::kTraits);
  }
}

constexpr auto kTable = ForEachOp([]<typename T>(std::type_identity<T>) { return RowOf<T>(); });

}  // namespace

std::span<const Op> OpTable() { return kTable; }

const Op& OpOf(const Node& node) { return kTable[node.kind.index()]; }

std::optional<Kind> KindNamed(const std::string& name) {
  static const auto kDefaults =
      ForEachOp([]<typename T>(std::type_identity<T>) { return Kind(T()); });
  for (const Kind& kind : kDefaults) {
    if (name == TraitsOf(kind).name) return kind;
  }
  return std::nullopt;
}

bool Counts(const Graph& graph, ValueId value) {
  const NodeId producer = graph.value(value).producer;
  if (producer == kFed) return false;
  const Node& node = graph.node(producer);
  for (size_t i = 0; i < node.outputs.size() && i < 32; ++i) {
    if (node.outputs[i] == value) return (TraitsOf(node.kind).count_outputs >> i & 1) != 0;
  }
  return false;
}

StatusOr<std::vector<ValueId>> AddOp(Graph* graph, Node node, std::vector<TensorType> wanted) {
  std::vector<TensorType> inputs;
  for (ValueId input : node.inputs) {
    inputs.push_back({graph->value(input).shape, graph->value(input).dtype});
  }
  Status status = OpOf(node).infer_types(node, inputs, &wanted);
  if (!status.ok()) return Annotate(status, fmt::format("{} ({})", node.name, node.op()));
  std::vector<Value> outputs;
  for (TensorType& type : wanted) {
    std::string name = type.suffix.empty() ? node.name : node.name + "/" + type.suffix;
    outputs.push_back({std::move(name), std::move(type.shape), type.dtype});
  }
  return graph->AddNode(std::move(node), std::move(outputs));
}

}  // namespace ringmaster::graph
