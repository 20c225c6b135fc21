// The square root as IEEE 754 defines it, correctly rounded: one instruction of the processor,
// never a call of libm, whose functions differ by version. Thread-safe (free functions).
#pragma once

namespace ringmaster {

// Without errno (-fno-math-errno, cmake/Toolchain.cmake) these are sqrtss and sqrtsd.
[[nodiscard]] inline float SquareRoot(float x) { return __builtin_sqrtf(x); }
[[nodiscard]] inline double SquareRoot(double x) { return __builtin_sqrt(x); }

}  // namespace ringmaster
