// softmax over the last axis, y = exp(x) / sum(exp(x)), and its gradient y (dy - sum(dy y)).
#pragma once

#include "common/graph/ops/op.h"

namespace ringmaster::graph {

// x(N,..,K) -> y
struct Softmax {
  static constexpr OpTraits kTraits = {.name = "softmax", .keras = "Softmax"};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// y dy -> dx
struct SoftmaxGradient {
  static constexpr OpTraits kTraits = {.name = "softmax_gradient", .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
