#include "common/graph/graph.h"

#include <fmt/ranges.h>

#include <utility>

namespace ringmaster::graph {

const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
    case DType::kInt32:
      return "int32";
  }
  return "unknown";
}

size_t ByteSize(DType dtype) {
  return dtype == DType::kBFloat16 || dtype == DType::kFloat16 ? 2 : 4;
}

int64_t Elements(const Shape& shape) {
  int64_t elements = 1;
  for (int64_t extent : shape) elements *= extent;
  return elements;
}

std::string ToString(const Shape& shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

ValueId Graph::AddFed(std::string name, Shape shape, DType dtype) {
  values_.push_back({std::move(name), std::move(shape), dtype, kFed});
  return static_cast<ValueId>(values_.size() - 1);
}

std::vector<ValueId> Graph::AddNode(Node node, std::vector<Value> outputs) {
  const auto id = static_cast<NodeId>(nodes_.size());
  node.outputs.clear();
  for (Value& output : outputs) {
    output.producer = id;
    node.outputs.push_back(static_cast<ValueId>(values_.size()));
    values_.push_back(std::move(output));
  }
  nodes_.push_back(std::move(node));
  return nodes_.back().outputs;
}

}  // namespace ringmaster::graph
