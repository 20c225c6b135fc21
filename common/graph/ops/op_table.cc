#include "common/graph/ops/op_table.h"

#include <utility>

#include "common/graph/ops/operands.h"
#include "common/graph/ops/pair_loss.h"
#include "common/graph/ops/unary.h"

namespace ringmaster::graph {
namespace {

// What the table asks of an op, made of an elementwise op's formulas (unary.h).
template <typename Op>
Status CheckUnary(const Node& node) {
  if constexpr (requires(const Op& op) { op.Check(); }) return node.as<Op>()->Check();
  return absl::OkStatus();
}

// x -> y
template <UnaryOp Op>
struct UnaryRules {
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
    RING_RETURN_IF_ERROR(CheckUnary<Op>(node));
    RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
    RING_RETURN_IF_ERROR(ExpectFloating("x", inputs[0]));
    *outputs = {{inputs[0].shape, inputs[0].dtype}};
    return absl::OkStatus();
  }

  static Gradients Gradient(const GradientRequest& request) {
    const Node& node = request.node;
    Node gradient = {node.name + "/gradient", UnaryGradient<Op>{*node.as<Op>()}, {}};
    if (ReadsX(Op::kReads)) gradient.inputs.push_back(node.inputs[0]);
    if (ReadsY(Op::kReads)) gradient.inputs.push_back(node.outputs[0]);
    gradient.inputs.push_back(request.output_gradients[0]);
    return AddOp(request.graph, std::move(gradient));
  }

  static void Reference(const ReferenceCall& call) {
    const Op& op = *call.node.as<Op>();
    for (size_t i = 0; i < call.outputs[0].size(); ++i) {
      call.outputs[0][i] = op.Forward(call.inputs[0][i]);
    }
  }
};

template <UnaryOp Op>
struct UnaryGradientRules {
  static constexpr size_t kDy = static_cast<size_t>(UnaryGradient<Op>::kDy);

  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
    RING_RETURN_IF_ERROR(CheckUnary<UnaryGradient<Op>>(node));
    RING_RETURN_IF_ERROR(ExpectInputs(inputs, kDy + 1, kDy + 1));
    RING_RETURN_IF_ERROR(ExpectFloating("dy", inputs[kDy]));
    for (size_t i = 0; i < kDy; ++i) {
      RING_RETURN_IF_ERROR(
          ExpectSame(i == 0 && ReadsX(Op::kReads) ? "x" : "y", inputs[i], inputs[kDy]));
    }
    *outputs = {{inputs[kDy].shape, inputs[kDy].dtype}};
    return absl::OkStatus();
  }

  static void Reference(const ReferenceCall& call) {
    const Op& op = *call.node.as<UnaryGradient<Op>>();
    const std::span<const double> x = call.inputs[0];        // unread where the formula
    const std::span<const double> y = call.inputs[kDy - 1];  // does not read it
    for (size_t i = 0; i < call.outputs[0].size(); ++i) {
      call.outputs[0][i] = op.Backward(x[i], y[i], call.inputs[kDy][i]);
    }
  }
};

// The same of a loss over pairs (pair_loss.h).
template <typename Op>
Status CheckPairs(const Node& node, OpInputs inputs, size_t count) {
  if constexpr (requires(const Op& op) { op.Check(); }) {
    RING_RETURN_IF_ERROR(node.as<Op>()->Check());
  }
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, count, count));
  RING_RETURN_IF_ERROR(ExpectType("predictions", inputs[0], DType::kFloat32));
  RING_RETURN_IF_ERROR(ExpectSame("targets", inputs[1], inputs[0]));
  if (!inputs[0].shape.empty()) return absl::OkStatus();
  return InvalidArgument("expected predictions of samples, got a scalar");
}

// predictions(N,..) targets(N,..) -> sum()
template <PairLossOp Op>
struct PairLossRules {
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
    RING_RETURN_IF_ERROR(CheckPairs<Op>(node, inputs, 2));
    *outputs = {{{}, DType::kFloat32}};
    return absl::OkStatus();
  }

  static void Reference(const ReferenceCall& call) {
    const Op& op = *call.node.as<Op>();
    const auto samples = static_cast<size_t>(call.input_shape(0)[0]);
    const size_t elements = call.inputs[0].size() / samples;
    for (size_t n = 0; n < samples; ++n) {
      double sum = 0;
      for (size_t i = n * elements; i < (n + 1) * elements; ++i) {
        sum += op.Value(call.inputs[0][i], call.inputs[1][i]);
      }
      call.outputs[0][0] += sum / static_cast<double>(elements);
    }
  }
};

template <PairLossWithSlope Op>
Gradients PairLossGradientOf(const GradientRequest& request) {
  const Node& node = request.node;
  if (request.wanted[1]) {
    return InvalidArgument("{}: no gradient flows into the targets of a loss", node.name);
  }
  RING_ASSIGN_OR_RETURN(
      const auto made,
      AddOp(request.graph, {node.name + "/gradient",
                            PairLossGradient<Op>{*node.as<Op>()},
                            {node.inputs[0], node.inputs[1], request.output_gradients[0]}}));
  return std::vector<ValueId>{made[0], kNoValue};
}

template <PairLossWithSlope Op>
struct PairLossGradientRules {
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
    RING_RETURN_IF_ERROR(CheckPairs<PairLossGradient<Op>>(node, inputs, 3));
    RING_RETURN_IF_ERROR(ExpectSame("the seed", inputs[2], {{}, DType::kFloat32}));
    *outputs = {{inputs[0].shape, DType::kFloat32}};
    return absl::OkStatus();
  }

  static void Reference(const ReferenceCall& call) {
    const Op& op = *call.node.as<PairLossGradient<Op>>();
    const int64_t elements = Elements(call.input_shape(0)) / call.input_shape(0)[0];
    const double scale = call.inputs[2][0] / static_cast<double>(elements);
    for (size_t i = 0; i < call.outputs[0].size(); ++i) {
      call.outputs[0][i] = op.Slope(call.inputs[0][i], call.inputs[1][i]) * scale;
    }
  }
};

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
