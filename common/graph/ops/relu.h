// relu, and its gradient, which masks by the output: dx = dy where y > 0, else 0.
#pragma once

#include "common/graph/ops/op.h"

namespace ringmaster::graph {

// x -> y
struct Relu {
  static constexpr OpTraits kTraits = {
      .name = "relu", .keras = "ReLU", .storage = Storage::kInPlace};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// y dy -> dx
struct ReluGradient {
  static constexpr OpTraits kTraits = {
      .name = "relu_gradient", .storage = Storage::kInPlace, .storage_input = 1, .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
