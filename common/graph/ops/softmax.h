// softmax over the last axis, y = exp(x) / sum(exp(x)), and its gradient y (dy - sum(dy y)); losses
// and measures of classes by it.
#pragma once

#include <tuple>

#include "common/graph/ops/op.h"

namespace ringmaster::graph {

// x(N,..,K) -> y
struct Softmax {
  static constexpr OpTraits kTraits = {.name = "softmax", .keras = "Softmax"};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// y dy -> dx
struct SoftmaxGradient {
  static constexpr OpTraits kTraits = {.name = "softmax_gradient", .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

// Losses and measures of classes: logits(N,K) against labels(N), int32 below K. The loss is the sum
// over samples of -sum_k target_k log softmax(logits)_k, the target (1 - s) onehot(label) + s / K
// with s the label smoothing (Szegedy and others, "Rethinking the Inception architecture for
// computer vision", 2015). Its gradient is (softmax - target) seed, seed being the gradient that
// flows into the sum. With a share, a scalar, the target of row n is share of its own and 1 - share
// of that of row n + 1, of the first one behind the last: of images that are mixed likewise
// (common/graph/augment/mix.h). No model has it; BuildProgram adds it.
struct SoftmaxCrossEntropyAttributes {
  double label_smoothing = 0;

  static constexpr auto Fields() {
    return std::tuple(Field{"label_smoothing", &SoftmaxCrossEntropyAttributes::label_smoothing,
                            "share of each target that all classes get"});
  }
};

// logits(N,K) labels(N) [share()] -> sum()
struct SoftmaxCrossEntropy : SoftmaxCrossEntropyAttributes {
  static constexpr OpTraits kTraits = {.name = "softmax_cross_entropy",
                                       .keras = "CategoricalCrossentropy",
                                       .float32_inputs = 0b101,
                                       .recompute = Recompute::kNever};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// logits labels seed() [share()] -> dlogits
struct SoftmaxCrossEntropyGradient : SoftmaxCrossEntropyAttributes {
  static constexpr OpTraits kTraits = {
      .name = "softmax_cross_entropy_gradient", .float32_inputs = 0b1101, .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

// logits(N,K) labels(N) -> hits(): how many samples have fewer than k logits in front of the
// label's, which are those that are larger, and equal ones of lower classes. A NaN is in front of
// nothing, and a label whose logit is NaN is no hit.
struct TopK {
  int64_t k = 1;

  static constexpr auto Fields() { return std::tuple(Field{"k", &TopK::k, "so many guesses"}); }
  static constexpr OpTraits kTraits = {.name = "top_k",
                                       .keras = "TopKCategoricalAccuracy",
                                       .float32_inputs = 0b1,
                                       .count_outputs = 0b1,
                                       .recompute = Recompute::kNever};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
