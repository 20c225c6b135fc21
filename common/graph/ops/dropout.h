// dropout, y = x keep / (1 - rate), and its gradient by the same mask. Element e (logical order
// inside a sample) of sample s is kept when PhiloxStream(seed, kDropout, step, s, layer).Uniform(e)
// >= rate. Per sample element 0 decides for the whole sample: what EfficientNet calls drop-connect.
#pragma once

#include <string>
#include <tuple>

#include "common/graph/ops/op.h"

namespace ringmaster::graph {

// Which elements become 0.
struct DropoutAttributes {
  double rate = 0;    // [0, 1)
  std::string layer;  // the node's name before any pass; no model says it
  bool per_sample = false;

  static constexpr auto Fields() {
    return std::tuple(
        Field{"rate", &DropoutAttributes::rate, "part of the elements that become 0"},
        Field{"per_sample", &DropoutAttributes::per_sample, "all elements of a sample, or none"});
  }
};

// x -> y
struct Dropout : DropoutAttributes {
  static constexpr OpTraits kTraits = {
      .name = "dropout", .keras = "Dropout", .storage = Storage::kInPlace};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// dy -> dx
struct DropoutGradient : DropoutAttributes {
  static constexpr OpTraits kTraits = {
      .name = "dropout_gradient", .storage = Storage::kInPlace, .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
