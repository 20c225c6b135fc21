// What a tensor is, apart from any graph: its type, its shape, and the number that a graph knows it
// by. Values; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ringmaster::graph {

enum class DType : uint8_t { kFloat32, kBFloat16, kFloat16, kInt32 };
[[nodiscard]] const char* Name(DType dtype);
[[nodiscard]] size_t ByteSize(DType dtype);
// The largest float32 that becomes 0 when it is stored: half the smallest subnormal. What a relu
// let pass was larger.
[[nodiscard]] constexpr float RoundsToZero(DType dtype) {
  return dtype == DType::kBFloat16 ? 0x1p-134F : dtype == DType::kFloat16 ? 0x1p-25F : 0;
}
// The smallest float32 that becomes 6, or more, when it is stored: half a step below 6, which is
// even. What a relu6 let pass was smaller.
[[nodiscard]] constexpr float RoundsToSix(DType dtype) {
  return 6 - (dtype == DType::kBFloat16 ? 0x1p-6F : dtype == DType::kFloat16 ? 0x1p-9F : 0);
}

using Shape = std::vector<int64_t>;  // empty = a scalar
[[nodiscard]] int64_t Elements(const Shape& shape);
[[nodiscard]] std::string ToString(const Shape& shape);  // (64, 32, 32, 3)

// What a node applies to its result before it writes it. Set by the fusion pass, never by a model.
// kRelu6 and kSwish only on a batch_norm without residual.
enum class Activation : uint8_t { kNone, kRelu, kRelu6, kSwish };
[[nodiscard]] constexpr const char* Name(Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return "relu";
    case Activation::kRelu6:
      return "relu6";
    case Activation::kSwish:
      return "swish";
    case Activation::kNone:
      break;
  }
  return "none";
}

struct TensorType {
  Shape shape;
  DType dtype = DType::kFloat32;
  std::string suffix = {};  // of an output's name after the node's; empty for the first
  bool operator==(const TensorType& other) const {
    return shape == other.shape && dtype == other.dtype;
  }
};

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr ValueId kNoValue = -1;
inline constexpr NodeId kFed = -1;

// Whether bytes, and sums over as many values as a node reads, are known not to wrap.
[[nodiscard]] inline bool IsCountable(const Shape& shape) {
  int64_t room = int64_t{1} << 48;
  for (const int64_t extent : shape) {
    if (extent < 1 || extent > room) return false;
    room /= extent;
  }
  return true;
}

}  // namespace ringmaster::graph
