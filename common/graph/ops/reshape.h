// reshape: x -> the same elements in the same order under another shape; the same bytes in memory.
#pragma once

#include <tuple>
#include <vector>

#include "common/graph/ops/op.h"

namespace ringmaster::graph {

// The wanted shape, or without one that of a model: axis 0 of x, then `shape`.
struct Reshape {
  std::vector<int64_t> shape;  // of one sample

  static constexpr auto Fields() {
    return std::tuple(Field{"shape", &Reshape::shape, "of one sample"});
  }
  static constexpr OpTraits kTraits = {
      .name = "reshape", .keras = "Flatten", .storage = Storage::kAlias};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
