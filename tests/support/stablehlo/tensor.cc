#include "tests/support/stablehlo/tensor.h"

#include <fmt/format.h>

namespace ringmaster::testing::stablehlo {

size_t Size(Type type) {
  switch (type) {
    case Type::kPred:
      return 1;
    case Type::kInt64:
    case Type::kUInt64:
      return 8;
    case Type::kBFloat16:
    case Type::kFloat16:
      return 2;
    default:
      return 4;
  }
}

const char* Name(Type type) {
  static constexpr const char* kNames[] = {"i1",   "i32", "i64",  "ui32",
                                           "ui64", "f32", "bf16", "f16"};
  return kNames[static_cast<size_t>(type)];
}

int64_t Elements(std::span<const int64_t> shape) {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

Shape RowMajorStrides(std::span<const int64_t> shape) {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) strides[axis] = stride;
  return strides;
}

size_t TensorType::tiled_bytes() const {
  const auto padded = [](int64_t extent, int64_t tile) {
    return (extent + tile - 1) / tile * tile;
  };
  Shape stored = shape;
  if (!stored.empty()) stored.back() = padded(stored.back(), 128);
  if (stored.size() > 1) {
    int64_t& rows = stored[stored.size() - 2];
    rows = padded(rows, Size(type) == 2 ? 16 : 8);
  }
  return Size(type) * static_cast<size_t>(Elements(stored));
}

std::string Text(const TensorType& type) {
  std::string text = "tensor<";
  for (const int64_t extent : type.shape) text += fmt::format("{}x", extent);
  return text + Name(type.type) + ">";
}

}  // namespace ringmaster::testing::stablehlo
