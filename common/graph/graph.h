// The graph of one shard's computation: typed values with static shapes and the nodes that make
// them. A value type, thread-compatible; built by GraphBuilder and by passes. It knows no backend.
//
// Nodes stand in topological order. Every value is made by exactly one node, or is fed from outside
// (producer == kFed). Layouts are logical: images N,H,W,C; convolution kernels O,H,W,I; dense
// kernels I,O; all dense and without padding.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "common/graph/ops/op_list.h"
#include "common/graph/tensor_type.h"

namespace ringmaster::graph {

struct Value {
  std::string name;
  Shape shape;
  DType dtype = DType::kFloat32;
  NodeId producer = kFed;
};

struct Node {
  std::string name;  // of the layer it came from, plus what a pass adds: conv1/weight_gradient
  Kind kind;         // the op, with its attributes
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs = {};
  bool float32 = false;  // it reads float32 under every policy, and so does its gradient
  bool again = false;    // it computes what another one did (passes/rematerialize.cc)

  // The op as one type, nullptr when it is another.
  template <typename Op>
  [[nodiscard]] const Op* as() const {
    return std::get_if<Op>(&kind);
  }
  template <typename Op>
  [[nodiscard]] Op* as() {
    return std::get_if<Op>(&kind);
  }
  // What the op shares with its family (Conv2dAttributes); nullptr when it is of another.
  template <typename Attributes>
  [[nodiscard]] const Attributes* attributes() const {
    return std::visit(
        []<typename Op>(const Op& op) -> const Attributes* {
          if constexpr (std::is_base_of_v<Attributes, Op>) {
            return &op;
          } else {
            return nullptr;
          }
        },
        kind);
  }
  [[nodiscard]] const char* op() const { return TraitsOf(kind).name; }
};

class Graph {
 public:
  // A value that is fed from outside.
  ValueId AddFed(std::string name, Shape shape, DType dtype);
  // Appends a node whose outputs get the given shapes and types; returns its outputs.
  std::vector<ValueId> AddNode(Node node, std::vector<Value> outputs);

  [[nodiscard]] const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  [[nodiscard]] Value& mutable_value(ValueId id) { return values_[static_cast<size_t>(id)]; }
  [[nodiscard]] const std::vector<Value>& values() const { return values_; }
  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
  [[nodiscard]] const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  [[nodiscard]] Node& mutable_node(NodeId id) { return nodes_[static_cast<size_t>(id)]; }

 private:
  std::vector<Value> values_;
  std::vector<Node> nodes_;
};

}  // namespace ringmaster::graph
