// float32 gradients to integers and back (docs/life_of_a_step.md). Thread-safe (free
// functions). Every function gives the same result on every machine; wider vector units are chosen
// at run time.
#pragma once

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

// sums = addends + q on addends of at most 31 bits, where every |q| is less than 2^30: then none of
// it can wrap, and `*bits` is how many bits the largest sum has now, at most 32. Else false, and
// nothing changes.
[[nodiscard]] bool QuantizeAddNarrow(std::span<const float> gradient, int unit_exponent,
                                     float gradient_scale, uint32_t shards, const int32_t* addends,
                                     int32_t* sums, int* bits);

// out[i] = float32(q[i]) * 2^unit_exponent for at most 256 elements: the integer is rounded to
// float32 once, half to even; then the scaling by a power of two, exact since a unit is 2^-40 to
// 2^119.
void Dequantize(std::span<const int64_t> q, int unit_exponent, float* out);
void Dequantize(std::span<const int32_t> q, int unit_exponent, float* out);

// How integers add up everywhere: modulo 2^64.
[[nodiscard]] inline int64_t WrappingAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

// A real value of the record as two integers, so that neither large values nor tiny ones meet a
// limit: whole = floor(value), and fraction, the rest in units of 2^-FractionBits, 0 to
// 2^FractionBits; together value rounded half to even to that unit. `kind` says why both are 0
// instead: not finite, or |whole| >= 2^(62 - ceil(log2 shards)). Neither wraps in the sum over all
// shards.
struct QuantizedScalar {
  int64_t whole = 0;
  int64_t fraction = 0;
  FlagKind kind = FlagKind::kNone;
};
[[nodiscard]] QuantizedScalar QuantizeScalar(double value, uint32_t shards);
// min(52, 62 - ceil(log2 shards)).
[[nodiscard]] int FractionBits(uint32_t shards);
// Of sums over shards: whole units are carried from the fraction, then one float64 addition.
[[nodiscard]] double DequantizeScalar(int64_t whole, int64_t fraction, uint32_t shards);

}  // namespace ringmaster::exact
