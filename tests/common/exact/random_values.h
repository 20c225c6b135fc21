// Seeded values for property tests of exact sums: integers of a given width and float32 of every
// magnitude, with the awkward ones in between. Thread-compatible.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace ringmaster::exact {

class RandomValues {
 public:
  explicit RandomValues(uint64_t seed) : engine_(seed) {}

  // Uniform in [low, high].
  int64_t Between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }

  // Two's complement of at most `width` bits, the extremes often.
  int64_t Integer(int width) {
    if (width == 0) return 0;
    const auto bits = static_cast<int64_t>(engine_()) >> (64 - width);
    const int64_t largest = std::numeric_limits<int64_t>::max() >> (64 - width);
    switch (Between(0, 9)) {
      case 0:
        return largest;
      case 1:
        return -largest - 1;
      case 2:
        return Between(0, 1) - 1;
      default:
        return bits;
    }
  }

  std::vector<int64_t> Integers(int width, size_t count) {
    std::vector<int64_t> integers(count);
    for (int64_t& integer : integers) integer = Integer(width);
    return integers;
  }

  // About 2^exponent, either sign; any significand.
  float Near(int exponent) {
    const auto bits = static_cast<uint32_t>(engine_());
    const int biased = exponent + 127 < 0 ? 0 : exponent + 127 > 254 ? 254 : exponent + 127;
    return std::bit_cast<float>((bits & 0x807fffff) | static_cast<uint32_t>(biased) << 23);
  }

  // A tie of round_half_even, or one unit in the last place beside it, at 2^exponent for 1.
  float Tie(int exponent) {
    const auto whole = static_cast<float>(Between(-(1 << 20), 1 << 20)) + 0.5F;
    const auto bits = std::bit_cast<uint32_t>(whole);
    const auto beside = std::bit_cast<float>(bits + static_cast<uint32_t>(Between(-1, 1)));
    return beside * std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
  }

  // Any bits: subnormals, NaN and infinities among them.
  float AnyBits() { return std::bit_cast<float>(static_cast<uint32_t>(engine_())); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace ringmaster::exact
