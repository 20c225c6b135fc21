// One element or one block at a time, in integer arithmetic: what this folder and kernels of GPUs
// have in common, so that both give the same bits. Callers on the host use quantize.h, codec.h and
// units.h. Thread-safe (free functions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/exact/block.h"
#include "common/numeric/host_device.h"

namespace ringmaster::exact {

inline constexpr uint32_t kMagnitudeMask = 0x7fffffff;
inline constexpr uint32_t kInfinityBits = 0x7f800000;

RING_HOST_DEVICE inline uint32_t FloatBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Bits of the float32 2^exponent; below the range the smallest subnormal, above it infinity.
RING_HOST_DEVICE constexpr uint32_t PowerBits(int exponent) {
  if (exponent > 127) return kInfinityBits;
  if (exponent >= -126) return static_cast<uint32_t>(exponent + 127) << 23;
  return uint32_t{1} << (exponent > -149 ? exponent + 149 : 0);
}

// q = round_half_even(g * 2^shift), or 0 where the bits of |g| reach `limit`.
struct Quantization {
  int shift;       // log2(gradient scale) - unit exponent: -245 to 104
  uint32_t limit;  // float32 bits of the smallest magnitude that is refused; at most +Inf's
};

// Of a block. Both limits are powers of two and a float32 that reaches 2^30 units is a whole number
// of them, so |q| is tested on |g|, before rounding.
RING_HOST_DEVICE constexpr Quantization MakeQuantization(int log2_scale, int unit_exponent,
                                                         int ceil_log2_shards) {
  const int value_limit = 127 - ceil_log2_shards;
  const int integer_limit = 62 - ceil_log2_shards + unit_exponent;
  const int limit = value_limit < integer_limit ? value_limit : integer_limit;
  return {log2_scale - unit_exponent, PowerBits(limit - log2_scale)};
}

// The bits of 2^30 units, or of the limit where that is less: what the conversion to int32 can
// hold. 0 where 2^shift is no normal float32.
RING_HOST_DEVICE constexpr uint32_t NarrowLimit(Quantization quantization) {
  if (quantization.shift < -126) return 0;
  const int exponent = 30 - quantization.shift < 127 ? 30 - quantization.shift : 127;
  if (exponent < -126) return 0;
  const uint32_t bits = PowerBits(exponent);
  return bits < quantization.limit ? bits : quantization.limit;
}

// round_half_even(value * 2^shift) of a magnitude below the limit.
RING_HOST_DEVICE inline int64_t RoundScaled(float value, int shift) {
  const uint32_t bits = FloatBits(value);
  const int biased = static_cast<int>((bits >> 23) & 0xff);
  const uint64_t fraction = bits & 0x7fffff;
  // |value| = mantissa * 2^exponent, subnormals too.
  const uint64_t mantissa = biased == 0 ? fraction : fraction | 0x800000;
  const int exponent = (biased == 0 ? 1 : biased) - 150 + shift;
  uint64_t q = 0;
  if (exponent >= 0) {
    q = mantissa << exponent;  // below 2^62 by the limit
  } else if (exponent >= -25) {
    const int dropped = -exponent;
    const uint64_t half = uint64_t{1} << (dropped - 1);
    const uint64_t rest = mantissa & ((uint64_t{1} << dropped) - 1);
    q = mantissa >> dropped;
    if (rest > half || (rest == half && (q & 1) != 0)) ++q;
  }
  return (bits >> 31) != 0 ? -static_cast<int64_t>(q) : static_cast<int64_t>(q);
}

// Packed blocks are rows of 16 lanes.
inline constexpr size_t kLanes = 16;
inline constexpr size_t kRows = kBlockElements / kLanes;

RING_HOST_DEVICE constexpr size_t RowsOf(size_t count) { return (count + kLanes - 1) / kLanes; }

// 32-bit words of each lane that `rows` rows at a width of at most 32 take.
RING_HOST_DEVICE constexpr size_t PlaneWords(int width, size_t rows) {
  return (rows * static_cast<size_t>(width) + 31) / 32;
}
RING_HOST_DEVICE constexpr size_t PlaneBytes(int width, size_t rows) {
  return PlaneWords(width, rows) * 4 * kLanes;
}

// Of the two planes: up to 32 bits of each element, and what is above them.
RING_HOST_DEVICE constexpr int LowWidth(int width) { return width < 32 ? width : 32; }
RING_HOST_DEVICE constexpr int HighWidth(int width) { return width < 32 ? 0 : width - 32; }

// u is never under 2^-40: the exponent E is clamped to [B - 40, 127].
inline constexpr int kSmallestUnitExponent = -40;
inline constexpr int kLargestExponent = 127;
// A block's exponent is not lower than its tensor's largest minus this.
inline constexpr int kTensorRange = 12;

// floor(log2) of a magnitude's bits. Zero and subnormals give -127 and lower values are not told
// apart: every one of them lies below the clamp.
RING_HOST_DEVICE constexpr int ExponentOf(uint32_t magnitude) {
  return static_cast<int>(magnitude >> 23) - 127;
}

// What every block of a tensor is raised to, from the largest ExponentOf of its blocks.
RING_HOST_DEVICE constexpr int LowestExponent(int tensor_exponent, int precision_bits) {
  const int smallest = precision_bits + kSmallestUnitExponent;
  const int lowest = tensor_exponent - kTensorRange;
  return smallest > lowest ? smallest : lowest;
}
RING_HOST_DEVICE constexpr int16_t ClampExponent(int exponent, int lowest) {
  const int raised = exponent > lowest ? exponent : lowest;
  return static_cast<int16_t>(raised < kLargestExponent ? raised : kLargestExponent);
}

}  // namespace ringmaster::exact
