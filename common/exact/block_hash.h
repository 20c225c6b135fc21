// The keyed hashes of a block's integers and of a block's words, element by element; digest.h and
// word_hash.h say what they are. For their sources and kernels of GPUs, which need the same
// constants. Thread-safe (values and free functions).
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/exact/block.h"
#include "common/host_device.h"

namespace ringmaster::exact {

inline constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio

// The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", 2014): a bijection.
RING_HOST_DEVICE constexpr uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Keys of the elements of a block, one table for each half of the sum. The high word is never 0 or
// 1, so that (high word of an integer that fits 32 bits) + key is never 0.
struct ElementKeys {
  alignas(64) uint64_t first[kBlockElements];
  alignas(64) uint64_t second[kBlockElements];
};

constexpr ElementKeys MakeElementKeys() {
  ElementKeys keys{};
  for (uint32_t i = 0; i < kBlockElements; ++i) {
    keys.first[i] = Mix((2 * i + 1) * kGolden) | uint64_t{2} << 32;
    keys.second[i] = Mix((2 * i + 2) * kGolden) | uint64_t{2} << 32;
  }
  return keys;
}

// Keys of the words of a block, odd numbers, one table for each half.
struct WordKeys {
  alignas(64) uint32_t first[kBlockElements];
  alignas(64) uint32_t second[kBlockElements];
};

constexpr WordKeys MakeWordKeys() {
  WordKeys keys{};
  for (uint32_t i = 0; i < kBlockElements; ++i) {
    const uint64_t place = kBlockElements + i;  // behind those of integers
    keys.first[i] = static_cast<uint32_t>(Mix((2 * place + 1) * kGolden)) | 1;
    keys.second[i] = static_cast<uint32_t>(Mix((2 * place + 2) * kGolden)) | 1;
  }
  return keys;
}

RING_HOST_DEVICE constexpr uint64_t WordProduct(uint32_t word, uint32_t key) {
  return uint64_t{word} * key;
}

// Names of what is hashed as words into one sum: the parts of a state. Slots follow each other.
enum class StatePart : uint8_t {
  kParameters,
  kExponents,  // of each block one word
  kMovingMeans,
  kMovingVariances,
  kNumbers,
  kRows,
  kFirstSlot,
};
// `number`: of a tensor, a normalization, an output; under 2^24.
RING_HOST_DEVICE constexpr uint32_t NameOfPart(StatePart part, uint32_t number) {
  return static_cast<uint32_t>(part) << 24 | number;
}
// 0: the parameters; i: slot i - 1.
RING_HOST_DEVICE constexpr StatePart TrainedPart(size_t part) {
  if (part == 0) return StatePart::kParameters;
  return static_cast<StatePart>(static_cast<size_t>(StatePart::kFirstSlot) + part - 1);
}

// The two sums over the products of a block's elements; the hash of a block and sums of hashes, of
// which `first` is the lower half.
struct Halves {
  uint64_t first = 0;
  uint64_t second = 0;
  bool operator==(const Halves&) const = default;
};

RING_HOST_DEVICE constexpr uint64_t KeyedProduct(int64_t integer, uint64_t key) {
  const auto x = static_cast<uint64_t>(integer);
  const auto low = static_cast<uint32_t>(x) + static_cast<uint32_t>(key);
  const auto high = static_cast<uint32_t>(x >> 32) + static_cast<uint32_t>(key >> 32);
  return uint64_t{low} * high;
}

// A bijection of the halves, chosen by block and count: three rounds of a Feistel-like network.
RING_HOST_DEVICE constexpr Halves FinishHash(Halves halves, uint32_t tensor, uint32_t index,
                                             uint32_t count) {
  const uint64_t key = Mix((uint64_t{tensor} << 32 | index) + kGolden);
  const uint64_t second_key = Mix(key + count * kGolden);
  halves.first = Mix(halves.first ^ key);
  halves.second = Mix((halves.second ^ second_key) + halves.first);
  halves.first += Mix(halves.second ^ key);
  return halves;
}

// Adds mod 2^128.
RING_HOST_DEVICE constexpr void AddHash(const Halves& hash, Halves* sum) {
  sum->first += hash.first;
  sum->second += hash.second + (sum->first < hash.first ? 1 : 0);
}

}  // namespace ringmaster::exact
