// The keyed hash of words of 32 bits, of which digests of states are made
// (worker/state/state_hash.h): at most a block of them at a time. Thread-safe (free functions).
// Every processor gives the same hash; wider vector units are chosen at run time.
//
// With x_i the words and keys a_i and b_i, odd numbers of 32 bits,
//   A = sum of x_i a_i mod 2^64, B = sum of x_i b_i mod 2^64,
// then the bijection of block_hash.h, which (name, index, count) choose. A block in which one word
// is another is always found; any other difference is missed by a chance of about 2^-64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/exact/block_hash.h"
#include "common/exact/digest.h"

namespace ringmaster::exact {

// What one pass over words gives: the two sums, and the largest word without its upper bit, which
// says of float32 whether all of them are finite.
struct WordSums {
  Halves halves;
  uint32_t largest = 0;
  bool operator==(const WordSums&) const = default;
};

// Of `count` words, at most 256, from any address on.
[[nodiscard]] WordSums SumWords(const void* words, size_t count);

// Adds the hash of the block `index` of `name` to `sum`; the largest magnitude among its words.
// `name` is the caller's: whatever is hashed into one sum has names of its own.
uint32_t AddWords(uint32_t name, uint32_t index, const void* words, size_t count, BlockSum* sum);

// For tests: one for each instruction set that this processor has, the portable one first.
struct WordKernel {
  const char* name;
  WordSums (*sum)(const void* words, size_t count);
};
[[nodiscard]] std::vector<WordKernel> WordKernels();

}  // namespace ringmaster::exact
