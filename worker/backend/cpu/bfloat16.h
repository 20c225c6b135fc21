// bfloat16 as storage: the upper half of a float32, rounded half to even, NaN kept NaN, subnormals
// kept. Arithmetic is float32. Thread-safe (a value).
#pragma once

#include <bit>
#include <cstdint>

namespace ringmaster::cpu {

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

}  // namespace ringmaster::cpu
