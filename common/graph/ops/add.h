// add: a b -> a + b, element by element, broadcast as broadcast.h says; what gradients that meet
// become.
#pragma once

#include "common/graph/ops/op.h"

namespace ringmaster::graph {

struct Add {
  static constexpr OpTraits kTraits = {.name = "add", .keras = "Add"};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
