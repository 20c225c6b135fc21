// What the op table asks of an op, made of the formulas of a loss over pairs (pair_loss.h). Read by
// op_table.cc alone. Thread-safe (free functions).
#pragma once

#include "common/graph/ops/operands.h"
#include "common/graph/ops/pair_loss.h"

namespace ringmaster::graph {

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

}  // namespace ringmaster::graph
