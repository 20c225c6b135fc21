// From integers back to float32, with the bits of common/exact. For kernels and for host code;
// thread-safe (free functions).
#pragma once

#include <cstdint>
#include <cstring>

#include "common/host_device.h"

namespace ringmaster::cuda {

// 2^(exponent - precision_bits), the unit of a block: a normal float32, since it is 2^-40 to 2^119.
RING_HOST_DEVICE inline float UnitOf(int exponent, int precision_bits) {
  const auto bits = static_cast<uint32_t>(exponent - precision_bits + 127) << 23;
  float unit;
  memcpy(&unit, &bits, sizeof(unit));
  return unit;
}

// What exact::Dequantize makes of one element: rounded once, half to even, then scaled exactly.
RING_HOST_DEVICE inline float Dequantize(int64_t q, float unit) {
  return static_cast<float>(q) * unit;
}

}  // namespace ringmaster::cuda
