// Normalization inside a sample, with its gradient: layer_norm over the last axis, group_norm over
// all axes but the samples' and a group of channels (Ba, Kiros and Hinton, 2016; Wu and He, 2018).
//   y = gamma (x - mean) r + beta, r = 1 / sqrt(variance + epsilon), variance biased
// Scales, offsets and statistics are float32; gamma and beta, one number a channel, are operands
// where `scale` and `center` say so.
#pragma once

#include <tuple>

#include "common/graph/ops/op.h"

namespace ringmaster::graph {

struct NormAttributes {
  double epsilon = 1e-3;
  bool scale = true;
  bool center = true;

  static constexpr auto Fields() {
    return std::tuple(Field{"epsilon", &NormAttributes::epsilon, "added to the variance"},
                      Field{"scale", &NormAttributes::scale, "there is a gamma"},
                      Field{"center", &NormAttributes::center, "there is a beta"});
  }
};

struct GroupNormAttributes : NormAttributes {
  int64_t groups = 32;  // of channels that lie side by side

  static constexpr auto Fields() {
    return std::tuple_cat(
        std::tuple(Field{"groups", &GroupNormAttributes::groups, "of channels, which they divide"}),
        NormAttributes::Fields());
  }
};

// x(N,..,C) [gamma(C)] [beta(C)] -> y mean(N,groups) r(N,groups)
struct GroupNorm : GroupNormAttributes {
  static constexpr OpTraits kTraits = {
      .name = "group_norm", .keras = "GroupNormalization", .float32_inputs = 0b110};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// x dy mean r [gamma] -> dx [dgamma] [dbeta]
struct GroupNormGradient : GroupNormAttributes {
  static constexpr OpTraits kTraits = {
      .name = "group_norm_gradient", .float32_inputs = 0b11100, .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

// x(N,..,C) [gamma(C)] [beta(C)] -> y mean(N,..) r(N,..)
struct LayerNorm : NormAttributes {
  static constexpr OpTraits kTraits = {
      .name = "layer_norm", .keras = "LayerNormalization", .float32_inputs = 0b110};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// x dy mean r [gamma] -> dx [dgamma] [dbeta]
struct LayerNormGradient : NormAttributes {
  static constexpr OpTraits kTraits = {
      .name = "layer_norm_gradient", .float32_inputs = 0b11100, .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

// Which elements of x group_norm and layer_norm normalize together: for each sample and group the
// group's channels at all positions. Values; thread-safe.

// x as (samples, positions, groups, channels of a group). To layer_norm each row is a sample with
// one position and one group.
struct NormSets {
  int64_t samples, positions, groups, channels;

  [[nodiscard]] int64_t all_channels() const { return groups * channels; }
  [[nodiscard]] int64_t sets() const { return samples * groups; }
  // Elements of a set.
  [[nodiscard]] int64_t elements() const { return positions * channels; }
  // Offset of the first channel of a set at a position; `set` counts groups, then samples.
  [[nodiscard]] int64_t At(int64_t set, int64_t position) const {
    return ((set / groups * positions + position) * groups + set % groups) * channels;
  }
};

// Of a group_norm, a layer_norm or their gradients, on x of that shape.
[[nodiscard]] NormSets NormSetsOf(const Node& node, const Shape& x);

}  // namespace ringmaster::graph
