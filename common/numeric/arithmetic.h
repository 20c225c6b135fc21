// Operations whose bits are the same on every machine: sums of float64 in one order, square roots.
// Thread-safe (free functions).
#pragma once

#include <algorithm>
#include <cstddef>

#include "common/numeric/host_device.h"

namespace ringmaster {

// The one order in which float64 sums are taken wherever a sum enters a result: blocks of 256
// elements, element i of a block to lane i mod 8, lanes pairwise, then a pairwise tree over the
// blocks. The same bits on every machine, and eight lanes vectorize.
inline constexpr size_t kLaneSumBlock = 256;

// Sum of value(i), a double, for i in [begin, end); at most one block.
template <typename Value>
[[nodiscard]] double LaneSumOfBlock(size_t begin, size_t end, const Value& value) {
  double lanes[8] = {};
  size_t i = begin;
  for (; i + 8 <= end; i += 8) {
    for (size_t lane = 0; lane < 8; ++lane) lanes[lane] += value(i + lane);
  }
  for (size_t lane = 0; i < end; ++i, ++lane) lanes[lane] += value(i);
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

// Sum of value(i), a double, for i in [first, first + count), count at least 1, as a pairwise tree.
// It splits at the largest power of two below the count, so that a value's place in it does not
// depend on how many follow.
template <typename Value>
[[nodiscard]] double PairwiseSum(size_t first, size_t count, const Value& value) {
  if (count == 1) return value(first);
  size_t half = 1;
  while (half * 2 < count) half *= 2;
  return PairwiseSum(first, half, value) + PairwiseSum(first + half, count - half, value);
}

// Sum of value(i) for i in [0, n).
template <typename Value>
[[nodiscard]] double LaneSum(size_t n, const Value& value) {
  if (n == 0) return 0;
  return PairwiseSum(0, (n - 1) / kLaneSumBlock + 1, [&](size_t block) {
    const size_t begin = block * kLaneSumBlock;
    return LaneSumOfBlock(begin, std::min(n, begin + kLaneSumBlock), value);
  });
}

// The square root as IEEE 754 defines it, correctly rounded: one instruction of the processor,
// never a call of libm, whose functions differ by version; on a GPU the rounding is the same.
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
