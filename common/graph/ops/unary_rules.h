// What the op table asks of an op, made of an elementwise op's formulas (unary.h). Read by
// op_table.cc alone. Thread-safe (free functions).
#pragma once

#include "common/graph/ops/operands.h"
#include "common/graph/ops/unary.h"

namespace ringmaster::graph {

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

}  // namespace ringmaster::graph
