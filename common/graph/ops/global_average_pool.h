// global_average_pool, the mean over height and width, and its gradient.
#pragma once

#include "common/graph/ops/op.h"

namespace ringmaster::graph {

// x(N,H,W,C) -> y(N,C)
struct GlobalAveragePool {
  static constexpr OpTraits kTraits = {.name = "global_average_pool",
                                       .keras = "GlobalAveragePooling2D"};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// dy -> dx of the wanted shape
struct GlobalAveragePoolGradient {
  static constexpr OpTraits kTraits = {.name = "global_average_pool_gradient"};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
