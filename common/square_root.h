// The square root as IEEE 754 defines it, correctly rounded: one instruction of the processor,
// never a call of libm, whose functions differ by version; on a GPU the rounding is the same.
// Thread-safe (free functions).
#pragma once

#include "common/host_device.h"

namespace ringmaster {

// Without errno (-fno-math-errno, cmake/Toolchain.cmake) the host's are sqrtss and sqrtsd.
[[nodiscard]] RING_HOST_DEVICE inline float SquareRoot(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}
[[nodiscard]] RING_HOST_DEVICE inline double SquareRoot(double x) {
#if defined(__CUDA_ARCH__)
  return __dsqrt_rn(x);
#else
  return __builtin_sqrt(x);
#endif
}

}  // namespace ringmaster
