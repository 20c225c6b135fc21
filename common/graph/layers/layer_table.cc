#include "common/graph/layers/layer_table.h"

#include <algorithm>
#include <any>
#include <utility>
#include <variant>

#include "common/graph/layers/layer_list.h"
#include "common/graph/ops/op_table.h"

namespace ringmaster::graph::layers {
namespace {

using Values = std::vector<ValueId>;

template <typename Layer>
concept ReadsSeveral = requires(const Layer& layer, GraphBuilder& builder, Values inputs) {
  layer.Build(builder, std::string(), inputs);
};
Values ListOf(ValueId value) { return {value}; }
Values ListOf(Values values) { return values; }

template <typename Layer>
StatusOr<Values> BuildLayer(const Attributes& options, GraphBuilder& builder,
                            const std::string& name, const Values& inputs) {
  Layer layer;
  RING_RETURN_IF_ERROR(ReadOptions(options, &layer));
  if constexpr (ReadsSeveral<Layer>) {
    return ListOf(builder.Add(name, layer, inputs));
  } else {
    return ListOf(builder.Add(name, layer, inputs.at(0)));
  }
}

// What such an op would leave as it is.
bool ChangesNothing(const Kind& op, const Shape& x) {
  const Shape extents = x.empty() ? Shape() : Shape(x.begin() + 1, x.end());
  if (const auto* reshape = std::get_if<Reshape>(&op)) return reshape->shape == extents;
  if (const auto* pad = std::get_if<Pad>(&op)) {
    return std::ranges::all_of(pad->pads, [](int64_t zeros) { return zeros == 0; });
  }
  const auto* slice = std::get_if<Slice>(&op);
  return slice != nullptr && slice->end == extents && slice->begin == Shape(extents.size(), 0);
}

template <typename Op>
StatusOr<Values> BuildOp(const Attributes& options, GraphBuilder& builder, const std::string& name,
                         const Values& inputs) {
  Op op;
  RING_RETURN_IF_ERROR(ReadOptions(options, &op));
  if (inputs.size() == 1 && ChangesNothing(op, builder.shape(inputs[0]))) return inputs;
  return builder.AddAll(name, std::move(op), inputs);
}

template <typename S>
std::optional<Attributes> OptionsOf(const S* options) {
  if (options == nullptr) return std::nullopt;
  const S defaults;
  Attributes written;
  WriteOptions(*options, &defaults, &written);
  return written;
}

template <typename Layer>
std::optional<Attributes> WrittenLayer(const GraphBuilder::Written& written) {
  return OptionsOf(std::any_cast<Layer>(&written.layer));
}

// The op is written as the layer of its name.
template <>
std::optional<Attributes> WrittenLayer<Concat>(const GraphBuilder::Written& written) {
  const auto* const op = std::any_cast<Kind>(&written.layer);
  const auto* const concat = op == nullptr ? nullptr : std::get_if<graph::Concat>(op);
  if (concat == nullptr) return OptionsOf(std::any_cast<Concat>(&written.layer));
  const Concat layer = {concat->axis};
  return OptionsOf(&layer);
}

template <typename Op>
std::optional<Attributes> WrittenOp(const GraphBuilder::Written& written) {
  const auto* const op = std::any_cast<Kind>(&written.layer);
  return op == nullptr ? std::nullopt : OptionsOf(std::get_if<Op>(op));
}

// Losses and measures stand behind the last layer.
template <typename Op>
inline constexpr bool ReadsTargets =
    PairLossOp<Op> || std::is_same_v<Op, TopK> || std::is_same_v<Op, SoftmaxCrossEntropy>;

// How many operands an op has at least.
template <typename Op>
size_t OperandsOf() {
  return std::is_same_v<Op, Add> || std::is_same_v<Op, Multiply> ? 2 : 1;
}

template <typename Layer>
LayerKind LayerRow() {
  LayerKind row = {.name = Layer::kName,
                   .help = Layer::kHelp,
                   .options = DescribeFields<Layer>(),
                   .more_inputs = ReadsSeveral<Layer>,
                   .own_form = OwnForm<Layer>,
                   .build = BuildLayer<Layer>,
                   .written = WrittenLayer<Layer>};
  if constexpr (requires { Layer::kRoles; }) {
    row.roles.assign(std::begin(Layer::kRoles), std::end(Layer::kRoles));
  }
  return row;
}

template <typename Op>
std::optional<LayerKind> OpRow() {
  const OpTraits& op = Op::kTraits;
  if (op.internal || ReadsTargets<Op>) return std::nullopt;
  const std::string keras = op.keras == nullptr ? "" : fmt::format(", Keras' {}", op.keras);
  return LayerKind{.name = op.name,
                   .help = "the op" + keras,
                   .options = DescribeFields<Op>(),
                   .inputs = OperandsOf<Op>(),
                   .own_form = OwnForm<Op>,
                   .build = BuildOp<Op>,
                   .written = WrittenOp<Op>};
}

std::vector<LayerKind> MakeLayerTable() {
  std::vector<LayerKind> table;
  std::vector<std::string> taken;
  for (auto& row : ForEachLayer([]<typename L>(std::type_identity<L>) { return LayerRow<L>(); })) {
    taken.push_back(row.name);
    table.push_back(std::move(row));
  }
  for (auto& row : ForEachOp([]<typename Op>(std::type_identity<Op>) { return OpRow<Op>(); })) {
    if (row && std::ranges::find(taken, row->name) == taken.end()) table.push_back(std::move(*row));
  }
  std::ranges::sort(table, {}, &LayerKind::name);
  return table;
}

}  // namespace

const std::vector<LayerKind>& LayerTable() {
  static const auto* const kTable = new std::vector<LayerKind>(MakeLayerTable());
  return *kTable;
}

const LayerKind* FindLayer(const std::string& name) {
  const auto at = std::ranges::find(LayerTable(), name, &LayerKind::name);
  return at == LayerTable().end() ? nullptr : &*at;
}

std::vector<std::string> LayerNames() {
  std::vector<std::string> names;
  for (const LayerKind& kind : LayerTable()) names.push_back(kind.name);
  return names;
}

}  // namespace ringmaster::graph::layers
