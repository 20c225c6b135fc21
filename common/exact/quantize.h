// float32 gradients to integers and back (docs/life_of_a_step.md). Thread-safe (free
// functions). Every function gives the same result on every machine; wider vector units are chosen
// at run time.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

namespace ringmaster::exact {

// What a shard's own values can be guilty of. The numbers go over the wire.
enum class FlagKind : uint8_t { kNone = 0, kNotFinite = 1, kTooLarge = 2 };

// One shard's flag as the integer that the record carries: 0, or kind + 4 * tensor (34 bits). Only
// the shard's owner adds it and the others add 0, so the sum is the code. Of several flags of one
// shard the smallest code that is not 0 is the first tensor's in canonical order.
[[nodiscard]] int64_t EncodeFlag(FlagKind kind, uint32_t tensor);
struct DecodedFlag {
  FlagKind kind = FlagKind::kNone;
  uint32_t tensor = 0;
};
// A number that EncodeFlag never gives decodes as kNotFinite of kRecordTensor, never as kNone.
[[nodiscard]] DecodedFlag DecodeFlag(int64_t code);

// Adds q = round_half_even(g[i] * gradient_scale / 2^unit_exponent) to sums[i] for at most 256
// elements of one block; unit_exponent is -40 to 119. gradient_scale is 1/S, a power of two from
// 2^-126 to 2^64. A value that is NaN, or infinite, or |g * gradient_scale| >=
// 2^(127 - ceil(log2 shards)), or |q| >= 2^(62 - ceil(log2 shards)) adds 0 and is reported; of
// several the first in element order. Integers wrap like uint64; the limits are there so that the
// sum over all shards never does.
[[nodiscard]] FlagKind QuantizeAdd(std::span<const float> gradient, int unit_exponent,
                                   float gradient_scale, uint32_t shards, int64_t* sums);

// out[i] = float32(q[i]) * 2^unit_exponent for at most 256 elements: the integer is rounded to
// float32 once, half to even; then the scaling by a power of two, exact since a unit is 2^-40 to
// 2^119.
void Dequantize(std::span<const int64_t> q, int unit_exponent, float* out);

// How integers add up everywhere: modulo 2^64.
[[nodiscard]] inline int64_t WrappingAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

// A real value of the record as two integers, so that neither large values nor tiny ones meet a
// limit: whole = floor(value), and fraction, the rest in units of 2^-fraction_bits(), 0 to
// 2^fraction_bits(); together value rounded half to even to that unit. `kind` says why both are 0
// instead: not finite, or |whole| >= 2^(62 - ceil(log2 shards)). Neither wraps in the sum over all
// shards.
struct QuantizedScalar {
  int64_t whole = 0;
  int64_t fraction = 0;
  FlagKind kind = FlagKind::kNone;
};

// How those are made in a job of some shards, tens of thousands a step where a net has many norms.
// A value; thread-safe.
class ScalarCode {
 public:
  explicit ScalarCode(uint32_t shards)
      : log2_shards_(static_cast<int>(std::bit_width(shards - 1))),
        fraction_bits_(std::min(52, 62 - log2_shards_)),
        limit_(PowerOfTwo(62 - log2_shards_)),
        units_(PowerOfTwo(fraction_bits_)),
        unit_(PowerOfTwo(-fraction_bits_)) {}

  // min(52, 62 - ceil(log2 shards)).
  [[nodiscard]] int fraction_bits() const { return fraction_bits_; }

  [[nodiscard]] QuantizedScalar Quantize(double value) const {
    const double whole = std::floor(value);
    if (!(std::fabs(whole) < limit_)) {
      return {0, 0, std::isfinite(value) ? FlagKind::kTooLarge : FlagKind::kNotFinite};
    }
    // Everything here is exact but for the rounding that is asked for: the scalings by a power of
    // two, and a difference of integers that is at most 2^52.
    const double fraction = std::rint(value * units_) - whole * units_;
    return {static_cast<int64_t>(whole), static_cast<int64_t>(fraction), FlagKind::kNone};
  }

  // Of sums over shards: whole units are carried from the fraction, then one float64 addition.
  [[nodiscard]] double Dequantize(int64_t whole, int64_t fraction) const {
    const int64_t carried = WrappingAdd(whole, fraction >> fraction_bits_);
    const int64_t rest = fraction & ((int64_t{1} << fraction_bits_) - 1);
    return static_cast<double>(carried) + static_cast<double>(rest) * unit_;
  }

 private:
  // A normal double: a product with it is what ldexp gives.
  static double PowerOfTwo(int exponent) {
    return std::bit_cast<double>(static_cast<uint64_t>(1023 + exponent) << 52);
  }

  int log2_shards_, fraction_bits_;
  double limit_, units_, unit_;
};

}  // namespace ringmaster::exact
