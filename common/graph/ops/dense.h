// dense and its two gradients: y(n,o) = sum over i of x(n,i) w(i,o), plus b(o). Biases, dw and db
// are float32.
#pragma once

#include "common/graph/ops/op.h"

namespace ringmaster::graph {

struct DenseAttributes {
  Activation activation = Activation::kNone;  // dense only
};

// x(N,I) w(I,O) [b(O)] -> y(N,O)
struct Dense : DenseAttributes {
  static constexpr OpTraits kTraits = {.name = "dense", .keras = "Dense", .float32_inputs = 0b100};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// dy w -> dx
struct DenseInputGradient : DenseAttributes {
  static constexpr OpTraits kTraits = {.name = "dense_input_gradient", .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

// x dy -> dw [db], db where two outputs are wanted
struct DenseWeightGradient : DenseAttributes {
  static constexpr OpTraits kTraits = {.name = "dense_weight_gradient", .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
