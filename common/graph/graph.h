// The graph of one shard's computation: typed values with static shapes and the nodes that make
// them. A value type, thread-compatible; built by GraphBuilder and by passes. It knows no backend.
//
// Nodes stand in topological order. Every value is made by exactly one node, or is fed from outside
// (producer == kFed). Layouts are logical: images N,H,W,C; convolution kernels O,H,W,I; dense
// kernels I,O; all dense and without padding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/attributes.h"
#include "common/status.h"

namespace ringmaster::graph {

enum class DType : uint8_t { kFloat32, kBFloat16, kFloat16, kInt32 };
[[nodiscard]] const char* Name(DType dtype);
[[nodiscard]] size_t ByteSize(DType dtype);

using Shape = std::vector<int64_t>;  // empty = a scalar
[[nodiscard]] int64_t Elements(const Shape& shape);
[[nodiscard]] std::string ToString(const Shape& shape);  // (64, 32, 32, 3)

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr ValueId kNoValue = -1;
inline constexpr NodeId kFed = -1;

struct Value {
  std::string name;
  Shape shape;
  DType dtype = DType::kFloat32;
  NodeId producer = kFed;
};

struct Node {
  std::string
      name;        // of the layer it came from, plus what a pass adds: conv1, conv1/weight_gradient
  std::string op;  // key of the op table (common/graph/ops/op_table.h)
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Attributes attributes;
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

 private:
  std::vector<Value> values_;
  std::vector<Node> nodes_;
};

}  // namespace ringmaster::graph
