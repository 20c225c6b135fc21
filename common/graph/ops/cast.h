// cast: x -> x in another floating type, rounded half to even; the type is that of its output.
#pragma once

#include "common/graph/ops/op.h"

namespace ringmaster::graph {

struct Cast {
  static constexpr OpTraits kTraits = {.name = "cast", .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
