// How a graph's floating types are stored on a CPU: as float, BFloat16 or Float16. Arithmetic is
// float32. Thread-safe (values and free functions).
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>

#include "common/graph/graph.h"

namespace ringmaster::cpu {

// bfloat16: the upper half of a float32, rounded half to even, NaN kept NaN, subnormals kept.
class BFloat16 {
 public:
  BFloat16() = default;
  // Written without branches, so that loops over it vectorize.
  explicit BFloat16(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet_nan = (bits >> 16) | 0x40u;
    bits_ = static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits_) << 16);
  }

 private:
  uint16_t bits_ = 0;
};
static_assert(sizeof(BFloat16) == 2);

// IEEE binary16, converted by F16C: rounded half to even, infinite beyond 65,504 and a half unit,
// NaN kept NaN, subnormals kept whatever the float mode.
class Float16 {
 public:
  Float16() = default;
  explicit Float16(float value) : bits_(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)) {}
  explicit operator float() const { return _cvtsh_ss(bits_); }

 private:
  uint16_t bits_ = 0;
};
static_assert(sizeof(Float16) == 2);

// The graph's name of a storage type.
template <typename T>
inline constexpr graph::DType kDTypeOf = graph::DType::kFloat32;
template <>
inline constexpr graph::DType kDTypeOf<BFloat16> = graph::DType::kBFloat16;
template <>
inline constexpr graph::DType kDTypeOf<Float16> = graph::DType::kFloat16;

template <typename T>
inline constexpr float kRoundsToZero = graph::RoundsToZero(kDTypeOf<T>);
template <typename T>
inline constexpr float kRoundsToSix = graph::RoundsToSix(kDTypeOf<T>);

// The same of `count` elements, eight at a time: compilers do not vectorize the conversions above.
inline void Widen(const Float16* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(half));
  }
  for (; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

inline void Narrow(const float* from, Float16* to, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), half);
  }
  for (; i < count; ++i) to[i] = Float16(from[i]);
}

// Calls `body` with a value of the C++ type that stores `dtype`: float, BFloat16 or Float16.
template <typename Body>
decltype(auto) WithStorage(graph::DType dtype, Body&& body) {
  switch (dtype) {
    case graph::DType::kBFloat16:
      return body(BFloat16{});
    case graph::DType::kFloat16:
      return body(Float16{});
    case graph::DType::kFloat32:
    case graph::DType::kInt32:
      break;
  }
  return body(float{});
}

}  // namespace ringmaster::cpu
