// The op table: for each op its shape rule, its gradient rule and its float64 reference kernel, as
// a row that is made of its struct (op.h). Immutable, thread-safe. It knows no backend.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/status.h"

namespace ringmaster::graph {

// Checks a node's operands and gives the types of its outputs. `outputs` comes in as what the
// caller wants: an op whose result its inputs do not determine (cast, reshape, the gradients with
// respect to an input) takes the shape, cast the type, from there; others ignore it.
using ShapeRule = Status (*)(const Node& node, std::span<const TensorType> inputs,
                             std::vector<TensorType>* outputs);

// What a gradient rule is asked: the gradients of the node's outputs (kNoValue = none flows), and
// which inputs' gradients are wanted.
struct GradientRequest {
  Graph* graph;
  Node node;  // a copy: appending nodes moves those of the graph
  std::vector<ValueId> output_gradients;
  std::vector<bool> wanted;  // by input
};

// Appends the gradient nodes; returns the gradient of each input, kNoValue where it is not wanted
// or there is none.
using GradientRule = StatusOr<std::vector<ValueId>> (*)(const GradientRequest& request);

// What keys the random ops of one run.
struct RandomKeys {
  uint64_t seed = 0;
  uint64_t step = 0;
  std::vector<uint64_t> samples;  // dataset index of each row
};

// One node's operands in float64, shapes as in the graph. Outputs are sized and zero.
struct ReferenceCall {
  const Graph& graph;
  const Node& node;
  std::vector<std::span<const double>> inputs;
  std::vector<std::span<double>> outputs;
  const RandomKeys& keys;

  const Shape& input_shape(size_t i) const { return graph.value(node.inputs[i]).shape; }
  const Shape& output_shape(size_t i) const { return graph.value(node.outputs[i]).shape; }
};
using ReferenceKernel = void (*)(const ReferenceCall& call);

// An op as a row: what its struct says.
struct Op {
  OpTraits traits;
  ShapeRule infer_types;
  GradientRule gradient;  // nullptr: not differentiable
  ReferenceKernel reference;
};

// By number.
[[nodiscard]] std::span<const Op> OpTable();
[[nodiscard]] const Op& OpOf(const Node& node);

// The op of that name with its default attributes; nothing when there is no such op.
[[nodiscard]] std::optional<Kind> KindNamed(const std::string& name);

// Whether that value is a scalar that counts.
[[nodiscard]] bool Counts(const Graph& graph, ValueId value);

// Infers the outputs of `node` and appends it: they are named after the node. `wanted`: see
// ShapeRule. INVALID_ARGUMENT names node and op.
StatusOr<std::vector<ValueId>> AddOp(Graph* graph, Node node, std::vector<TensorType> wanted = {});

}  // namespace ringmaster::graph
