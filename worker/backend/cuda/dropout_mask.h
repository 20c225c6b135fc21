// Which elements dropout keeps, and what becomes of them: the CPU backend's arithmetic. For kernels
// and for host code; thread-safe (values and free functions).
#pragma once

#include <cmath>
#include <cstdint>

#include "common/host_device.h"

namespace ringmaster::cuda {

struct DropoutMask {
  uint32_t threshold;  // an element is kept when the upper 24 of its bits reach this
  float divisor;       // 1 - rate
};

// Uniform() is an integer times 2^-24, so comparing integers is the same comparison.
inline DropoutMask MakeDropoutMask(double rate) {
  return {static_cast<uint32_t>(std::ceil(rate * 0x1p24)), static_cast<float>(1 - rate)};
}

RING_HOST_DEVICE inline float Drop(const DropoutMask& mask, uint32_t bits, float x) {
  return (bits >> 8) >= mask.threshold ? x / mask.divisor : 0.0F;
}

}  // namespace ringmaster::cuda
