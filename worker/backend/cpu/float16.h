// IEEE binary16 as storage, converted by F16C: rounded half to even, infinite beyond 65,504 and a
// half unit, NaN kept NaN, subnormals kept whatever the float mode. Arithmetic is float32.
// Thread-safe (values and free functions).
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace ringmaster::cpu {

class Float16 {
 public:
  Float16() = default;
  explicit Float16(float value) : bits_(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)) {}
  explicit operator float() const { return _cvtsh_ss(bits_); }

 private:
  uint16_t bits_ = 0;
};
static_assert(sizeof(Float16) == 2);

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

}  // namespace ringmaster::cpu
