#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "common/check.h"
#include "common/data/drawing.h"
#include "common/data/formats/image_formats.h"
#include "common/image/codecs.h"
#include "common/image/placement.h"
#include "common/numeric/arithmetic.h"
#include "common/numeric/philox.h"

namespace ringmaster::data {
namespace {

// What the classes are, in order of their labels.
enum class Pattern : uint8_t {
  kHorizontalStripes,
  kVerticalStripes,
  kDiagonalStripes,
  kCheckerboard,
  kRings,
  kDotLattice,
  kLineLattice,
  kPluses,
  kDiscs,
  kZigzag,
};
constexpr uint32_t kPatterns = 10, kAxes = 10;
static_assert(static_cast<uint32_t>(Pattern::kZigzag) + 1 == kPatterns);

// Triangle wave of period 1 in [-1, 1]: -1 at whole numbers.
double Wave(double t) { return 1 - 2 * std::fabs(2 * (t - std::floor(t)) - 1); }

// Geometry of one image. Which numbers mean what depends on the pattern.
struct Geometry {
  static constexpr size_t kShapes = 5;
  double period_x, period_y, phase_x, phase_y, slant;
  size_t shapes;
  std::array<double, kShapes> x, y, size;
};

Geometry DrawGeometry(Dice& dice) {
  Geometry g = {};
  g.period_x = dice.Between(5, 9);
  g.period_y = dice.Between(5, 9);
  g.phase_x = dice.Between(0, 1);
  g.phase_y = dice.Between(0, 1);
  g.slant = dice.Sign() * dice.Between(0, 0.2);
  g.shapes = 3 + dice.Below(Geometry::kShapes - 2);
  for (size_t i = 0; i < Geometry::kShapes; ++i) {
    g.x[i] = dice.Between(5, kCifarWidth - 5);
    g.y[i] = dice.Between(5, kCifarHeight - 5);
    g.size[i] = dice.Between(6, 9);
  }
  return g;
}

// The strongest of the scattered shapes at a pixel; `shape(dx, dy, size)` is one of them.
template <typename Shape>
double Scattered(const Geometry& g, double x, double y, const Shape& shape) {
  double ink = 0;
  for (size_t i = 0; i < g.shapes; ++i) {
    ink = std::max(ink, shape(x - g.x[i], y - g.y[i], g.size[i]));
  }
  return ink;
}

double Plus(double dx, double dy, double size) {
  const double along = std::max(std::fabs(dx), std::fabs(dy));
  const double across = std::min(std::fabs(dx), std::fabs(dy));
  return std::min(Inside(along, size), Inside(across, 1.5));
}

double Disc(double dx, double dy, double size) {
  return Inside(SquareRoot(dx * dx + dy * dy), 0.6 * size);
}

// 0 is background, 1 is foreground.
double Ink(Pattern pattern, const Geometry& g, double x, double y) {
  const double across_x = Wave(x / g.period_x + g.phase_x);
  const double across_y = Wave(y / g.period_y + g.phase_y);
  const auto stripes = [](double wave) { return Clamp01(0.5 + 1.5 * wave); };
  switch (pattern) {
    case Pattern::kHorizontalStripes:
      return stripes(Wave((y + g.slant * x) / g.period_y + g.phase_y));
    case Pattern::kVerticalStripes:
      return stripes(Wave((x + g.slant * y) / g.period_x + g.phase_x));
    case Pattern::kDiagonalStripes: {
      const double side = g.slant < 0 ? -1 : 1;
      return stripes(Wave((x + (side + g.slant) * y) / (1.4 * g.period_x) + g.phase_x));
    }
    case Pattern::kCheckerboard:
      return Clamp01(0.5 + 3 * across_x * across_y);
    case Pattern::kRings: {
      const double dx = x - g.x[0], dy = y - g.y[0];
      return stripes(Wave(SquareRoot(dx * dx + dy * dy) / g.period_x + g.phase_x));
    }
    case Pattern::kDotLattice:
      return Clamp01(1.5 * (across_x + across_y) - 0.6);
    case Pattern::kLineLattice:
      return Clamp01(3 * std::max(across_x, across_y) - 1.2);
    case Pattern::kPluses:
      return Scattered(g, x, y, Plus);
    case Pattern::kDiscs:
      return Scattered(g, x, y, Disc);
    case Pattern::kZigzag: {
      // Stripes that rise and fall by 45 degrees.
      const double rise = 0.5 * g.period_x * Wave(x / (2 * g.period_x) + g.phase_x);
      return stripes(Wave((y + rise) / (1.2 * g.period_y) + g.phase_y));
    }
  }
  return 0;
}

// Of one colour channel: background, its slope over the image, and what the foreground adds.
struct Channel {
  double level, slope_x, slope_y, contrast;
};

// The axis in red, green and blue along which each class differs from its background. Both ends of
// an axis are as likely, so no mean over images tells classes apart, and no linear model does.
constexpr double kAxisOf[kAxes][kCifarChannels] = {
    {1, 0, 0}, {0, 1, 0}, {0, 0, 1},  {1, 1, 0},  {0, 1, 1},
    {1, 0, 1}, {1, 1, 1}, {1, -1, 0}, {0, 1, -1}, {1, 0, -1},
};

std::array<Channel, kCifarChannels> DrawColours(uint32_t axis_number, Dice& dice) {
  std::array<Channel, kCifarChannels> channels;
  const double sign = dice.Sign();
  const double strength = dice.Between(80, 120);
  for (size_t c = 0; c < kCifarChannels; ++c) {
    Channel& channel = channels[c];
    const double axis = kAxisOf[axis_number][c];
    channel.contrast = sign * (strength * axis + dice.Between(-20, 20));
    channel.level = dice.Between(100, 156) - channel.contrast / 2;
    channel.slope_x = dice.Between(-0.8, 0.8);
    channel.slope_y = dice.Between(-0.8, 0.8);
  }
  return channels;
}

PhiloxStream StreamOf(const SampleKey& key) {
  return {key.seed, PhiloxStream::Purpose::kSampleData, static_cast<uint64_t>(key.split),
          key.sample, ""};
}

}  // namespace

uint32_t SampleImageLabel(const SampleKey& key) {
  const PhiloxStream stream = StreamOf(key);
  return Dice(stream).Below(key.classes);  // the first that is drawn
}

uint32_t DrawSampleImage(const SampleKey& key, std::span<uint8_t> planes) {
  RING_CHECK(planes.size() == kCifarPixels, "image size");
  RING_CHECK(key.classes == kPatterns || key.classes == kPatterns * kAxes, "classes");
  constexpr uint64_t kNoise = 1 << 10;  // first element of the noise, past all other draws
  constexpr double kNoiseAmplitude = 24;
  const PhiloxStream stream = StreamOf(key);
  Dice dice(stream);
  const uint32_t label = dice.Below(key.classes);
  const bool crossed = key.classes > kPatterns;
  const auto pattern = static_cast<Pattern>(crossed ? label / kAxes : label);
  const Geometry geometry = DrawGeometry(dice);
  const std::array<Channel, kCifarChannels> channels =
      DrawColours(crossed ? label % kAxes : label, dice);
  constexpr size_t kPlane = size_t{kCifarHeight} * kCifarWidth;
  for (size_t i = 0; i < kPlane; ++i) {
    const auto x = static_cast<double>(i % kCifarWidth);
    const auto y = static_cast<double>(i / kCifarWidth);
    const double ink = Ink(pattern, geometry, x, y);
    // One block a pixel: a word for each channel.
    const PhiloxBlock noise = stream.Block(kNoise / 4 + i);
    for (size_t c = 0; c < kCifarChannels; ++c) {
      const Channel& channel = channels[c];
      const double value = channel.level + channel.slope_x * (x - kCifarWidth / 2.0) +
                           channel.slope_y * (y - kCifarHeight / 2.0) + channel.contrast * ink +
                           kNoiseAmplitude * SignedUniform(noise[c]);
      planes[c * kPlane + i] = PixelOf(value);
    }
  }
  return label;
}

SampleKey SampleOfClass(uint64_t seed, Split split, uint64_t i) {
  SampleKey key{seed, split, i << 16, kPatterns};
  while (SampleImageLabel(key) != i % kPatterns) ++key.sample;
  return key;
}

std::vector<SampleFile> SampleShards(
    uint64_t train, uint64_t test,
    const std::function<std::string(Split split, uint64_t shard, uint64_t shards)>& name,
    const std::function<std::string(const SampleKey& key, uint64_t sample)>& draw,
    const std::string& end) {
  std::vector<SampleFile> files;
  for (const Split split : {Split::kTrain, Split::kTest}) {
    const bool trains = split == Split::kTrain;
    const uint64_t samples = trains ? train : test;
    const uint64_t shards = std::min<uint64_t>(samples, trains ? 4 : 2);
    for (uint64_t shard = 0; shard < shards; ++shard) {
      const uint64_t first = samples * shard / shards, past = samples * (shard + 1) / shards;
      const auto whole = [=](uint64_t seed) {
        std::string bytes;
        for (uint64_t i = first; i < past; ++i) bytes += draw(SampleOfClass(seed, split, i), i);
        return bytes + end;
      };
      files.push_back({.name = name(split, shard, shards),
                       .split = split,
                       .begin = first,
                       .end = past,
                       .whole = whole});
    }
  }
  return files;
}

std::string DrawSampleFile(const SampleKey& key) {
  constexpr int kQuality = 92;
  std::vector<uint8_t> planes(kCifarPixels), pixels(kCifarPixels);
  DrawSampleImage(key, planes);
  PlanesToInterleaved(planes, kCifarChannels, pixels);
  const image::Size drawn{kCifarHeight, kCifarWidth};
  const PhiloxStream sizes(key.seed, PhiloxStream::Purpose::kSampleData,
                           static_cast<uint64_t>(key.split), key.sample, "size");
  const image::Size size{40 + sizes.Below(0, 33), 40 + sizes.Below(1, 33)};
  std::vector<uint8_t> resized(size_t{size.height} * size.width * kCifarChannels);
  image::RenderStored(pixels, drawn, kCifarChannels, {{0, 0, drawn}, size, {0, 0, size}}, resized);
  return image::EncodeJpeg(resized, size, kCifarChannels, kQuality);
}

}  // namespace ringmaster::data
