// conv2d and its two gradients: y(n,p,q,o) = sum over h,w,i of x(n, ps-t+hd, qs-l+we, i)
// k(o,h,w,i), plus b(o): a correlation, as every framework means by convolution. In groups, the
// filters of group g, O / groups of them in a row, read its C / groups channels alone: i counts
// those. With as many groups as channels that is a depthwise convolution, whose output c m + j
// comes of channel c. Biases, dw and db are float32.
#pragma once

#include <array>
#include <tuple>

#include "common/graph/ops/op.h"

namespace ringmaster::graph {

struct Conv2dAttributes {
  std::array<int64_t, 2> strides = {1, 1};     // height, width
  std::array<int64_t, 4> pads = {0, 0, 0, 0};  // top, left, bottom, right
  Activation activation = Activation::kNone;   // conv2d only
  std::array<int64_t, 2> dilations = {1, 1};   // d, e: height, width
  int64_t groups = 1;
  bool operator==(const Conv2dAttributes&) const = default;

  static constexpr auto Fields() {
    return std::tuple(Field{"strides", &Conv2dAttributes::strides, "height, width"},
                      Field{"pads", &Conv2dAttributes::pads, "top, left, bottom, right"},
                      Field{"dilations", &Conv2dAttributes::dilations, "height, width"},
                      Field{"groups", &Conv2dAttributes::groups, "of channels"});
  }
};

// x(N,H,W,C) w(O,h,w,C/groups) [b(O)] -> y(N,P,Q,O)
struct Conv2d : Conv2dAttributes {
  static constexpr OpTraits kTraits = {
      .name = "conv2d", .keras = "Conv2D", .float32_inputs = 0b100};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// dy w -> dx of the wanted shape
struct Conv2dInputGradient : Conv2dAttributes {
  static constexpr OpTraits kTraits = {.name = "conv2d_input_gradient", .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

// x dy -> dw of the wanted shape [db], db where a second output is wanted
struct Conv2dWeightGradient : Conv2dAttributes {
  static constexpr OpTraits kTraits = {.name = "conv2d_weight_gradient", .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
