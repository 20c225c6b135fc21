// multiply: a b -> a b, element by element, broadcast as broadcast.h says.
#pragma once

#include "common/graph/ops/op.h"

namespace ringmaster::graph {

struct Multiply {
  static constexpr OpTraits kTraits = {.name = "multiply", .keras = "Multiply"};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
