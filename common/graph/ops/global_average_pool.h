// global_average_pool, the mean over height and width, and its gradient.
#pragma once

#include <tuple>

#include "common/graph/ops/op.h"

namespace ringmaster::graph {

// x(N,H,W,C) -> y(N,C), or (N,1,1,C) where dimensions are kept
struct GlobalAveragePool {
  bool keep_dims = false;
  static constexpr auto Fields() {
    return std::tuple(
        Field{"keep_dims", &GlobalAveragePool::keep_dims, "height and width stay, as 1"});
  }
  static constexpr OpTraits kTraits = {.name = "global_average_pool",
                                       .keras = "GlobalAveragePooling2D"};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// dy of either shape -> dx of the wanted shape
struct GlobalAveragePoolGradient {
  static constexpr OpTraits kTraits = {.name = "global_average_pool_gradient", .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
