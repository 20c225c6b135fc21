// reshape: x -> the same elements in the same order under another shape, that of its output; the
// same bytes in memory.
#pragma once

#include "common/graph/ops/op.h"

namespace ringmaster::graph {

struct Reshape {
  static constexpr OpTraits kTraits = {
      .name = "reshape", .keras = "Flatten", .storage = Storage::kAlias};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
