// Drawn sample images, and what they are drawn with: an image's own random numbers, soft edges and
// rounding to pixels. + - * /, floor and square root only, so the same bytes on every machine.
// Thread-compatible.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/data/format.h"
#include "common/numeric/philox.h"

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

struct SampleKey {
  uint64_t seed;
  Split split;
  uint64_t sample;
  uint32_t classes;  // 10: a pattern with an axis of its own; 100: each pattern with each axis
};

// An image in colour (sample_image.cc): classes told apart by local structure and by the axis of
// colour along which foreground and background differ. Place, phase, scale, polarity, contrast and
// noise are random, and every class is its own mirror image, so that the mean of a pixel says
// nothing about the class. Fills `planes` (kCifarPixels) and returns the label: a function of the
// key.
[[nodiscard]] uint32_t SampleImageLabel(const SampleKey& key);
uint32_t DrawSampleImage(const SampleKey& key, std::span<uint8_t> planes);

// The key of sample `i` of data whose classes, ten of them, take turns.
[[nodiscard]] SampleKey SampleOfClass(uint64_t seed, Split split, uint64_t i);
// A sample image as a JPEG, its height and width from 40 to 72, each by itself.
[[nodiscard]] std::string DrawSampleFile(const SampleKey& key);

// Files that hold such images one after the other, up to four of training samples and two of
// others: what `draw` makes of each image and its number, then `end`.
[[nodiscard]] std::vector<SampleFile> SampleShards(
    uint64_t train, uint64_t test,
    const std::function<std::string(Split split, uint64_t shard, uint64_t shards)>& name,
    const std::function<std::string(const SampleKey& key, uint64_t sample)>& draw,
    const std::string& end = "");

// The digit, 0 to 9, that stands in a grey image of 28 x 28 (sample_digit.cc): its label. Bright
// strokes on a dark ground, of random place, size, slant, thickness and brightness, with noise.
[[nodiscard]] uint32_t SampleDigit(uint64_t seed, Split split, uint64_t sample);
// Fills `pixels` (28 * 28): a function of (seed, split, sample).
void DrawSampleDigit(uint64_t seed, Split split, uint64_t sample, std::span<uint8_t> pixels);

}  // namespace ringmaster::data
