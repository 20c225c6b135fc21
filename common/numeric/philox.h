// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011). A value is a pure function of (key, counter); there is no
// state, so every draw can be repeated anywhere in any order. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace ringmaster {

using PhiloxBlock = std::array<uint32_t, 4>;

// Ten rounds of Philox4x32.
[[nodiscard]] PhiloxBlock Philox4x32(PhiloxBlock counter, std::array<uint32_t, 2> key);

// One stream of random numbers, keyed by what it is for: (seed, purpose, step, subject, layer).
// Element i of the stream is At(i), in O(1). `subject` is a sample or a tensor number; `layer` a
// layer's name before any pass, empty when there is none.
class PhiloxStream {
 public:
  enum class Purpose : uint32_t {
    kInitialize = 1,
    kDropout = 2,
    kRandomCrop = 3,
    kRandomFlip = 4,
    kPermutation = 5,
    kSampleData = 6,
    kDigest = 7,
    kRandomBrightness = 8,
    kRandomContrast = 9,
    kRandomWindow = 10,
    kRandomResizedCrop = 11,
    kColorJitter = 12,
    kRandomRotation = 13,
    kRandomErasing = 14,
    kMix = 15,
  };
  PhiloxStream(uint64_t seed, Purpose purpose, uint64_t step, uint64_t subject,
               const std::string& layer);

  // 32 random bits of element i.
  [[nodiscard]] uint32_t At(uint64_t i) const;
  // The four words of elements 4b to 4b + 3: what kernels vectorize over.
  [[nodiscard]] PhiloxBlock Block(uint64_t b) const;
  // Uniform in [0, 1): the upper 24 bits of At(i), times 2^-24; exact in float32.
  [[nodiscard]] float Uniform(uint64_t i) const;
  // Uniform integer in [0, bound), bound >= 1: (bits * bound) >> 32.
  [[nodiscard]] uint32_t Below(uint64_t i, uint32_t bound) const;

  std::array<uint32_t, 2> key() const { return key_; }
  // Words 2 and 3 of every counter; words 0 and 1 are the block number b.
  std::array<uint32_t, 2> counter_high() const { return high_; }

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 2> high_;
};

}  // namespace ringmaster
