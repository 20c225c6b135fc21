// The keyed hash of a block of words, word by word; word_hash.h says what it is. For its source and
// kernels of GPUs, which need the same constants. Thread-safe (values and free functions).
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/exact/block.h"
#include "common/numeric/host_device.h"

namespace ringmaster::exact {

inline constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio

// The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", 2014): a bijection.
RING_HOST_DEVICE constexpr uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Word i of a block belongs to lane i % kHashLanes.
inline constexpr uint32_t kHashLanes = 16;

struct WordKeys {
  // Of each word two keys of 16 bits, for its lower half the lower one. All are odd, and no two of
  // a lane have the same magnitude.
  alignas(64) uint32_t words[kBlockElements];
  // Of each lane's sum, odd numbers.
  alignas(64) uint32_t first[kHashLanes];
  alignas(64) uint32_t second[kHashLanes];
};

constexpr WordKeys MakeWordKeys() {
  WordKeys keys{};
  for (uint32_t lane = 0; lane < kHashLanes; ++lane) {
    const uint64_t random = Mix((kBlockElements + 1 + lane) * kGolden);
    keys.first[lane] = static_cast<uint32_t>(random >> 32) | 1;
    keys.second[lane] = static_cast<uint32_t>(random) | 1;
  }
  for (uint32_t i = 0; i < kBlockElements; ++i) {
    const uint64_t random = Mix((i + 1) * kGolden);
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t bits = static_cast<uint32_t>(random >> (32 * half));
      // Among a lane's 32, in another order in each.
      const uint32_t number = (2 * (i / kHashLanes) + half) ^ (keys.first[i % kHashLanes] >> 27);
      const uint32_t magnitude = number << 10 | (bits & 0x3fe) | 1;
      const uint32_t key = bits >> 31 != 0 ? 0x10000 - magnitude : magnitude;
      keys.words[i] |= key << (16 * half);
    }
  }
  return keys;
}

// What a word adds to its lane's sum, mod 2^32: each half times its key, as signed numbers.
RING_HOST_DEVICE constexpr uint32_t WordTerm(uint32_t word, uint32_t keys) {
  const int32_t low = int32_t{static_cast<int16_t>(word)} * static_cast<int16_t>(keys);
  const int32_t high = int32_t{static_cast<int16_t>(word >> 16)} * static_cast<int16_t>(keys >> 16);
  return static_cast<uint32_t>(low) + static_cast<uint32_t>(high);
}

// The two words of an integer: its lower half, and what its upper half has that is not this one's
// sign, which is 0 where the integer fits 32 bits.
RING_HOST_DEVICE constexpr uint32_t LowWord(int64_t integer) {
  return static_cast<uint32_t>(integer);
}
RING_HOST_DEVICE constexpr uint32_t HighWord(int64_t integer) {
  const auto bits = static_cast<uint64_t>(integer);
  return static_cast<uint32_t>(bits >> 32) + (static_cast<uint32_t>(bits) >> 31);
}

// What FinishHash takes for the count of a block's high words.
RING_HOST_DEVICE constexpr uint32_t HighCount(uint32_t count) { return count + kBlockElements; }

// Names of what is hashed as words into one sum: the parts of a state. Slots follow each other.
enum class StatePart : uint8_t {
  kParameters,
  kExponents,  // a word each, 256 of a tensor a block
  kMovingMeans,
  kMovingVariances,
  kNumbers,
  kRows,
  kFirstSlot,
};
RING_HOST_DEVICE constexpr uint32_t WordOfExponent(int16_t exponent) {
  return static_cast<uint16_t>(exponent);
}
// `number`: of a tensor, a normalization, an output; under 2^24.
RING_HOST_DEVICE constexpr uint32_t NameOfPart(StatePart part, uint32_t number) {
  return static_cast<uint32_t>(part) << 24 | number;
}
// 0: the parameters; i: slot i - 1.
RING_HOST_DEVICE constexpr StatePart TrainedPart(size_t part) {
  if (part == 0) return StatePart::kParameters;
  return static_cast<StatePart>(static_cast<size_t>(StatePart::kFirstSlot) + part - 1);
}

// The two sums over a block's lanes; the hash of a block and sums of hashes, of
// which `first` is the lower half.
struct Halves {
  uint64_t first = 0;
  uint64_t second = 0;
  bool operator==(const Halves&) const = default;
};

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
