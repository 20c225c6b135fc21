// softmax_cross_entropy: the sum over samples of -log softmax(logits)[label], and how many samples
// have their first largest logit at the label. Its gradient is (softmax - onehot) seed, seed being
// the gradient that flows into the sum. Labels are int32, the rest is float32.
#pragma once

#include "common/graph/ops/op.h"

namespace ringmaster::graph {

// logits(N,K) labels(N) -> loss_sum() correct()
struct SoftmaxCrossEntropy {
  static constexpr OpTraits kTraits = {
      .name = "softmax_cross_entropy", .float32_inputs = 0b1, .count_outputs = 0b10};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// logits labels seed() -> dlogits
struct SoftmaxCrossEntropyGradient {
  static constexpr OpTraits kTraits = {
      .name = "softmax_cross_entropy_gradient", .float32_inputs = 0b101, .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
