// concat, split, slice and pad: ops that copy boxes of elements, on any axis but the samples'. Axes
// count from 0, which is the samples'. concat and split are each the other's gradient, and so are
// slice and pad.
#pragma once

#include <tuple>
#include <vector>

#include "common/graph/ops/op.h"

namespace ringmaster::graph {

// x0 x1 ... -> y, side by side along the axis; equal in all other extents
struct Concat {
  int64_t axis = 1;
  static constexpr auto Fields() {
    return std::tuple(Field{"axis", &Concat::axis, "along which operands lie side by side"});
  }
  static constexpr OpTraits kTraits = {.name = "concat", .keras = "Concatenate"};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// x -> y/0 y/1 ..., an output for each size
struct Split {
  int64_t axis = 1;
  std::vector<int64_t> sizes = {};
  static constexpr auto Fields() {
    return std::tuple(Field{"axis", &Split::axis, "that is cut"},
                      Field{"sizes", &Split::sizes, "extents of the outputs along it"});
  }
  static constexpr OpTraits kTraits = {.name = "split"};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// x -> y, the elements from begin up to end
struct Slice {
  std::vector<int64_t> begin = {}, end = {};  // of each axis but the samples'
  static constexpr auto Fields() {
    return std::tuple(Field{"begin", &Slice::begin, "first index of each axis but the samples'"},
                      Field{"end", &Slice::end, "likewise, behind the last index"});
  }
  static constexpr OpTraits kTraits = {.name = "slice", .keras = "Cropping2D"};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// x -> y with zeros round it
struct Pad {
  std::vector<int64_t> pads = {};
  static constexpr auto Fields() {
    return std::tuple(
        Field{"pads", &Pad::pads, "before each axis but the samples', then behind each"});
  }
  static constexpr OpTraits kTraits = {.name = "pad", .keras = "ZeroPadding2D"};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
