// Ops that move elements and compute nothing. concat, split, slice and pad copy boxes of elements,
// on any axis but the samples'; axes count from 0, which is the samples'. concat and split are each
// the other's gradient, and so are slice and pad. reshape keeps the elements, and their order.
#pragma once

#include <cstdint>
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

// Copies between boxes of dense tensors: what concat, split, slice and pad come down to, in the
// reference and in backends. Thread-safe (values and free functions).

class Graph;

// A box that begins at index `begin` of a tensor of shape `tensor`.
struct Box {
  Shape tensor, begin;
};

// How to walk two boxes of the same extents together: rows of `row` elements that lie side by side
// in both tensors.
class BoxCopy {
 public:
  // As many axes everywhere; both boxes lie inside their tensors.
  BoxCopy(const Box& from, const Box& to, const Shape& extents);

  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] int64_t row() const { return row_; }
  // Offsets of the first element of a row.
  struct Offsets {
    int64_t from, to;
  };
  [[nodiscard]] Offsets At(int64_t row) const;

  // The axes outside a row, outermost first: extents, and elements that a step moves.
  [[nodiscard]] const Shape& outer() const { return outer_; }
  [[nodiscard]] const Shape& from_strides() const { return from_strides_; }
  [[nodiscard]] const Shape& to_strides() const { return to_strides_; }

 private:
  Shape outer_, from_strides_, to_strides_;
  Offsets first_ = {0, 0};
  int64_t rows_ = 1, row_ = 1;
};

// One of the copies that a node consists of.
struct BoxTransfer {
  size_t input, output;
  BoxCopy copy;
};

// All of a concat, split, slice or pad; what they do not write is 0. Of another op none.
[[nodiscard]] std::vector<BoxTransfer> TransfersOf(const Graph& graph, const Node& node);

// x -> the same elements in the same order under another shape; the same bytes in memory.

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
