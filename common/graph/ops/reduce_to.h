// reduce_to: x -> the sum of its elements over every axis along which the wanted shape would be
// broadcast to that of x. Internal: what the gradients of broadcasting ops are made of.
#pragma once

#include "common/graph/ops/op.h"

namespace ringmaster::graph {

// x -> y of the wanted shape; float32 where that has a lower rank: the gradient of a parameter
struct ReduceTo {
  static constexpr OpTraits kTraits = {.name = "reduce_to", .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
