// Numbers of 16 bits and the dispatch from an element type to the C++ type that holds it.
// Arithmetic on 16 bits is done in float and rounded to nearest even, as XLA does on hosts. Free
// functions.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "tests/support/stablehlo/tensor.h"

namespace ringmaster::testing::stablehlo {

struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto wide = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (wide + 0x7fff + ((wide >> 16) & 1)) >> 16;
    // Rounding could make an infinity of a NaN: it stays one, quiet.
    bits = static_cast<uint16_t>(value != value ? (wide >> 16) | 0x40 : rounded);
  }
  operator float() const {  // NOLINT(google-explicit-constructor): a float that is stored short
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) : bits(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)) {}
  operator float() const { return _cvtsh_ss(bits); }  // NOLINT(google-explicit-constructor)
};

using Pred = bool;

// Whether arithmetic on T is done in float.
template <typename T>
inline constexpr bool kIsFloat =
    std::is_same_v<T, float> || std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;
template <typename T>
using Arithmetic = std::conditional_t<kIsFloat<T>, float, T>;

// body(T()) with the C++ type of `type`.
template <typename Body>
auto Dispatch(Type type, Body&& body) {
  switch (type) {
    case Type::kPred:
      return body(Pred());
    case Type::kInt32:
      return body(int32_t());
    case Type::kInt64:
      return body(int64_t());
    case Type::kUInt32:
      return body(uint32_t());
    case Type::kUInt64:
      return body(uint64_t());
    case Type::kBFloat16:
      return body(BFloat16());
    case Type::kFloat16:
      return body(Float16());
    case Type::kFloat32:
      break;
  }
  return body(float());
}

// body(T()) with an unsigned type of so many bytes: for what only moves elements.
template <typename Body>
auto DispatchSize(size_t bytes, Body&& body) {
  switch (bytes) {
    case 1:
      return body(uint8_t());
    case 2:
      return body(uint16_t());
    case 4:
      return body(uint32_t());
    default:
      return body(uint64_t());
  }
}

}  // namespace ringmaster::testing::stablehlo
