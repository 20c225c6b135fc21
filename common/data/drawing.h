// What the generators of sample images draw with: an image's own random numbers, soft edges and
// rounding to pixels. + - * / and floor only, so the same bytes on every machine.
// Thread-compatible.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/philox.h"

namespace ringmaster::data {

// The image's random numbers, taken one after the other; noise has a block range of its own.
class Dice {
 public:
  explicit Dice(const PhiloxStream& stream) : stream_(stream) {}
  double Between(double low, double high) {
    return low + (high - low) * double{stream_.Uniform(next_++)};
  }
  uint32_t Below(uint32_t bound) { return stream_.Below(next_++, bound); }
  double Sign() { return Below(2) == 0 ? -1.0 : 1.0; }

 private:
  const PhiloxStream& stream_;
  uint64_t next_ = 0;
};

inline double Clamp01(double x) { return std::clamp(x, 0.0, 1.0); }

// 1 inside, 0 outside, one pixel of slope at the edge.
inline double Inside(double distance, double limit) { return Clamp01(limit - distance + 0.5); }

// Random bits to a number in [-1, 1).
inline double SignedUniform(uint32_t bits) { return static_cast<double>(bits >> 8) * 0x1p-23 - 1; }

inline uint8_t PixelOf(double value) {
  return static_cast<uint8_t>(std::clamp(std::floor(value), 0.0, 255.0));
}

}  // namespace ringmaster::data
