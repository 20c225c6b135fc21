// average_pool, the mean of what a window covers of the image, and its gradient. Padding is not
// counted: at an edge fewer elements are divided by their own number.
#pragma once

#include "common/graph/ops/max_pool.h"
#include "common/graph/ops/op.h"

namespace ringmaster::graph {

// x(N,H,W,C) -> y
struct AveragePool : PoolAttributes {
  static constexpr OpTraits kTraits = {.name = "average_pool", .keras = "AveragePooling2D"};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// dy -> dx of the wanted shape
struct AveragePoolGradient : PoolAttributes {
  static constexpr OpTraits kTraits = {.name = "average_pool_gradient", .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
