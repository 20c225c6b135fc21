// The loss of a classifier, with its outputs. A value; thread-safe.
#pragma once

#include "common/graph/layers/layer.h"

namespace ringmaster::graph::layers {

// Logits (N, classes) against the column label: the loss that is minimized, and the accuracy. The
// label gets its limit from the logits.
struct SoftmaxCrossEntropy {
  static constexpr const char* kName = "softmax_cross_entropy";
  static constexpr const char* kHelp = "the loss of a classifier";
  static constexpr auto Fields() { return std::tuple(); }
  void Build(GraphBuilder& builder, const std::string& name, ValueId logits) const;
};

}  // namespace ringmaster::graph::layers
