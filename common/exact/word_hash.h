// The keyed hash of words of 32 bits, of which digests are made (digest.h, and of states
// worker/state/state_hash.h): at most a block of them at a time. Thread-safe (free functions).
// Every processor gives the same hash; wider vector units are chosen at run time.
//
// Word i belongs to lane i mod 16. With keys of 16 bits, c_i and d_i, all of them odd and no two of
// a lane of the same magnitude, and odd keys of 32 bits, a_j and b_j,
//   s_j = sum over the lane's words of (lower half) c_i + (upper half) d_i mod 2^32, all signed,
//   A   = sum over the lanes of s_j a_j mod 2^64, B the same with b_j,
// then the bijection of block_hash.h, which (name, index, count) choose. block_hash.h makes the
// keys of SplitMix64's finalizer.
//
// One or two wrong bits, and a wrong half of a word, always change their lanes' sums: the keys are
// odd, and neither the sum nor the difference of two of a lane is 0 mod 2^17. Any other difference
// in one lane is missed by a chance of about 2^-32; when several lanes' sums are wrong, by one of
// about 2^-64. It guards against errors, not against an adversary: the keys are public.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/exact/block_hash.h"
#include "common/exact/digest.h"

namespace ringmaster::exact {

// A and B of `count` words, at most 256, from any address on.
[[nodiscard]] Halves SumWords(const void* words, size_t count);

// Adds the hash of the block `index` of `name` to `sum`. `name` is the caller's: whatever is hashed
// into one sum has names of its own.
void AddWords(uint32_t name, uint32_t index, const void* words, size_t count, BlockSum* sum);

// For tests: one for each instruction set that this processor has, the portable one first.
struct WordKernel {
  const char* name;
  Halves (*sum)(const void* words, size_t count);
};
[[nodiscard]] std::vector<WordKernel> WordKernels();

}  // namespace ringmaster::exact
