// Ops in which tensors of different shapes meet element by element: add, multiply, and reduce_to,
// of which their gradients are made; what their rules share, and loops, which the reference and
// backends share. Thread-safe (values and free functions).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/graph/ops/op.h"
#include "common/status.h"

namespace ringmaster::graph {

// The shape of what two operands make together. Of equal ranks: extents of 1 broadcast, except
// those of axis 0, the samples. The operand of lower rank, a parameter, meets the last axes of the
// other. INVALID_ARGUMENT names both shapes.
[[nodiscard]] StatusOr<Shape> BroadcastShape(const Shape& a, const Shape& b);

// The type of the only output of an op on two operands of one floating type.
[[nodiscard]] StatusOr<OpOutputs> BroadcastTypes(OpInputs inputs);

// What `gradient`, of the shape of the node's output, is to its input i: a reduce_to where that was
// broadcast, itself where it was not.
[[nodiscard]] StatusOr<ValueId> ReducedTo(const GradientRequest& request, size_t i,
                                          ValueId gradient);

// One of the nested loops over the elements of a result: how many steps, and by how many elements
// each step moves in operand a and in b. 0: that operand is broadcast.
struct BroadcastAxis {
  int64_t extent;
  std::array<int64_t, 2> strides;
};

class BroadcastAxes {
 public:
  // Of operands that fit, outermost first; neighbours that both operands walk alike are one. An
  // operand moves by 0 or 1 on the last.
  BroadcastAxes(const Shape& a, const Shape& b);

  // At least one.
  [[nodiscard]] const std::vector<BroadcastAxis>& axes() const { return axes_; }
  // Elements of the result.
  [[nodiscard]] int64_t count() const;
  // Offsets in a and b of element i of the result.
  [[nodiscard]] std::array<int64_t, 2> At(int64_t i) const;

 private:
  std::vector<BroadcastAxis> axes_;
};

// a b -> a + b, element by element; what gradients that meet become.
struct Add {
  static constexpr OpTraits kTraits = {.name = "add", .keras = "Add"};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// a b -> a b, element by element.
struct Multiply {
  static constexpr OpTraits kTraits = {.name = "multiply", .keras = "Multiply"};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static Gradients Gradient(const GradientRequest& request);
  static void Reference(const ReferenceCall& call);
};

// The sum of the elements of x over every axis along which the wanted shape would be broadcast to
// that of x. Internal: what the gradients of broadcasting ops are made of.

// x -> y of the wanted shape; float32 where that has a lower rank: the gradient of a parameter
struct ReduceTo {
  static constexpr OpTraits kTraits = {.name = "reduce_to", .internal = true};
  static Status InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs);
  static void Reference(const ReferenceCall& call);
};

}  // namespace ringmaster::graph
