#include "common/exact/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/check.h"
#include "common/exact/arithmetic.h"
#include "common/exact/kernels.h"

namespace ringmaster::exact {
namespace {

constexpr int kLargestUnitExponent = 119;  // E = 127, B = 8

int CeilLog2(uint32_t shards) { return static_cast<int>(std::bit_width(shards - 1)); }

// log2 of a power of two. The bounds keep every scaled subnormal far under half a unit.
int ScaleExponent(float scale) {
  const auto bits = std::bit_cast<uint32_t>(scale);
  const int exponent = static_cast<int>(bits >> 23) - 127;
  RING_CHECK((bits & 0x7fffff) == 0 && exponent >= -126 && exponent <= 64,
             "a gradient scale is a power of two from 2^-126 to 2^64");
  return exponent;
}

// Why the first refused value was refused.
FlagKind FirstRefused(std::span<const float> gradient, uint32_t limit) {
  for (const float value : gradient) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(value) & kMagnitudeMask;
    if (magnitude >= limit) {
      return magnitude >= kInfinityBits ? FlagKind::kNotFinite : FlagKind::kTooLarge;
    }
  }
  return FlagKind::kNone;
}

void CheckUnit(int unit_exponent, size_t count) {
  RING_CHECK(unit_exponent >= -40 && unit_exponent <= kLargestUnitExponent,
             "a unit is 2^-40 to 2^119");
  RING_CHECK(count <= kBlockElements, "a block has at most 256 elements");
}

}  // namespace

int64_t EncodeFlag(FlagKind kind, uint32_t tensor) {
  if (kind == FlagKind::kNone) return 0;
  return static_cast<int64_t>(tensor) * 4 + static_cast<int64_t>(kind);
}

DecodedFlag DecodeFlag(int64_t code) {
  if (code == 0) return {};
  const int64_t kind = code & 3;
  const int64_t tensor = code >> 2;
  if ((kind != 1 && kind != 2) || tensor < 0 || tensor > kRecordTensor) {
    return {FlagKind::kNotFinite, kRecordTensor};
  }
  return {static_cast<FlagKind>(kind), static_cast<uint32_t>(tensor)};
}

FlagKind QuantizeAdd(const Kernels& kernels, std::span<const float> gradient, int unit_exponent,
                     float gradient_scale, uint32_t shards, int64_t* sums) {
  CheckUnit(unit_exponent, gradient.size());
  RING_CHECK(shards >= 1, "a job has at least one shard");
  const Quantization quantization =
      MakeQuantization(ScaleExponent(gradient_scale), unit_exponent, CeilLog2(shards));
  if (!kernels.quantize_add(gradient.data(), gradient.size(), quantization, sums)) {
    return FlagKind::kNone;
  }
  return FirstRefused(gradient, quantization.limit);
}

bool QuantizeAddNarrow(const Kernels& kernels, std::span<const float> gradient, int unit_exponent,
                       float gradient_scale, uint32_t shards, const int32_t* addends, int32_t* sums,
                       int* bits) {
  CheckUnit(unit_exponent, gradient.size());
  RING_CHECK(shards >= 1, "a job has at least one shard");
  const Quantization quantization =
      MakeQuantization(ScaleExponent(gradient_scale), unit_exponent, CeilLog2(shards));
  const uint32_t limit = NarrowLimit(quantization);
  return limit > 0 && kernels.quantize_add_narrow(gradient.data(), gradient.size(), quantization,
                                                  limit, addends, sums, bits);
}

FlagKind QuantizeAdd(std::span<const float> gradient, int unit_exponent, float gradient_scale,
                     uint32_t shards, int64_t* sums) {
  return QuantizeAdd(BestKernels(), gradient, unit_exponent, gradient_scale, shards, sums);
}

void Dequantize(const Kernels& kernels, std::span<const int64_t> q, int unit_exponent, float* out) {
  CheckUnit(unit_exponent, q.size());
  kernels.wide.dequantize(q.data(), q.size(), std::bit_cast<float>(PowerBits(unit_exponent)), out);
}

void Dequantize(const Kernels& kernels, std::span<const int32_t> q, int unit_exponent, float* out) {
  CheckUnit(unit_exponent, q.size());
  kernels.narrow.dequantize(q.data(), q.size(), std::bit_cast<float>(PowerBits(unit_exponent)),
                            out);
}

void Dequantize(std::span<const int64_t> q, int unit_exponent, float* out) {
  Dequantize(BestKernels(), q, unit_exponent, out);
}

}  // namespace ringmaster::exact
