// A real number as an integer multiple of 2^-192, 512 bits wide: sums of float32 values without any
// rounding, for tests that compare with the true sum. Values; thread-compatible.
#pragma once

#include <array>
#include <cmath>
#include <compare>
#include <cstdint>

namespace ringmaster {

class WideFixed {
 public:
  static constexpr int kUnitExponent = -192;

  WideFixed() = default;
  // A finite value that is a multiple of 2^-192 (every float32 and its multiples by 2^-43).
  explicit WideFixed(double value) {
    if (value == 0) return;
    int exponent = 0;
    const double fraction = std::frexp(std::fabs(value), &exponent);  // in [1/2, 1)
    auto mantissa = static_cast<uint64_t>(std::ldexp(fraction, 53));
    int shift = exponent - 53 - kUnitExponent;
    for (; shift < 0; ++shift) mantissa >>= 1;  // drops zeros only
    const auto word = static_cast<size_t>(shift / 64);
    const int bit = shift % 64;
    words_[word] = mantissa << bit;
    if (bit != 0) words_[word + 1] = mantissa >> (64 - bit);
    if (value < 0) *this = -*this;
  }

  WideFixed& operator+=(const WideFixed& other) {
    unsigned carry = 0;
    for (size_t i = 0; i < words_.size(); ++i) {
      const unsigned __int128 sum =
          static_cast<unsigned __int128>(words_[i]) + other.words_[i] + carry;
      words_[i] = static_cast<uint64_t>(sum);
      carry = static_cast<unsigned>(sum >> 64);
    }
    return *this;
  }
  WideFixed operator-() const {
    WideFixed result;
    for (size_t i = 0; i < words_.size(); ++i) result.words_[i] = ~words_[i];
    WideFixed one;
    one.words_[0] = 1;
    return result += one;
  }
  friend WideFixed operator+(WideFixed a, const WideFixed& b) { return a += b; }
  friend WideFixed operator-(WideFixed a, const WideFixed& b) { return a += -b; }

  [[nodiscard]] bool negative() const { return words_.back() >> 63 != 0; }
  [[nodiscard]] WideFixed Abs() const { return negative() ? -*this : *this; }
  // Of values that are not negative.
  friend bool operator<=(const WideFixed& a, const WideFixed& b) { return !(b - a).negative(); }
  bool operator==(const WideFixed&) const = default;

 private:
  std::array<uint64_t, 8> words_{};  // two's complement, lowest first
};

}  // namespace ringmaster
