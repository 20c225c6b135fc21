// Element types, types of tensors and tensors of the StableHLO interpreter: dense, row-major, in
// the bytes that a program of XLA has on the host. Values; thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ringmaster::testing::stablehlo {

enum class Type : uint8_t {
  kPred,  // a byte, 0 or 1
  kInt32,
  kInt64,
  kUInt32,
  kUInt64,
  kFloat32,
  kBFloat16,
  kFloat16,
};

[[nodiscard]] size_t Size(Type type);       // bytes of an element
[[nodiscard]] const char* Name(Type type);  // as StableHLO writes it: f32
[[nodiscard]] inline bool IsFloat(Type type) { return type >= Type::kFloat32; }
[[nodiscard]] inline bool IsInteger(Type type) {
  return type != Type::kPred && type < Type::kFloat32;
}

using Shape = std::vector<int64_t>;

[[nodiscard]] int64_t Elements(std::span<const int64_t> shape);
[[nodiscard]] Shape RowMajorStrides(std::span<const int64_t> shape);

struct TensorType {
  Type type = Type::kFloat32;
  Shape shape;

  [[nodiscard]] size_t bytes() const { return Size(type) * static_cast<size_t>(Elements(shape)); }
  // With the last two dimensions padded to tiles of 8 x 128 elements, 16 x 128 of two bytes: as a
  // TPU stores it.
  [[nodiscard]] size_t tiled_bytes() const;
  bool operator==(const TensorType&) const = default;
};

[[nodiscard]] std::string Text(const TensorType& type);  // tensor<2x3xf32>

// Memory that nobody clears first: who asks for it writes all of it.
template <typename T>
struct Uncleared : std::allocator<T> {
  using std::allocator<T>::allocator;
  template <typename U>
  struct rebind {
    using other = Uncleared<U>;
  };
  template <typename U>
  void construct(U* place) {
    ::new (static_cast<void*>(place)) U;
  }
  template <typename U, typename... Arguments>
  void construct(U* place, Arguments&&... arguments) {
    ::new (static_cast<void*>(place)) U(std::forward<Arguments>(arguments)...);
  }
};
using Bytes = std::vector<std::byte, Uncleared<std::byte>>;

struct Tensor {
  Type type = Type::kFloat32;
  Shape shape;
  Bytes bytes;

  Tensor() = default;
  explicit Tensor(const TensorType& of) : type(of.type), shape(of.shape), bytes(of.bytes()) {}

  [[nodiscard]] TensorType tensor_type() const { return {type, shape}; }
  template <typename T>
  [[nodiscard]] const T* data() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
  template <typename T>
  [[nodiscard]] T* data() {
    return reinterpret_cast<T*>(bytes.data());
  }
};

}  // namespace ringmaster::testing::stablehlo
