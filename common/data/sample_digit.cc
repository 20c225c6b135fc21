#include <algorithm>
#include <vector>

#include "common/check.h"
#include "common/data/drawing.h"
#include "common/data/formats/image_formats.h"
#include "common/numeric/arithmetic.h"
#include "common/numeric/philox.h"

namespace ringmaster::data {
namespace {

struct Point {
  double x, y;
};
using Stroke = std::vector<Point>;

// Each digit as polylines in a box of 4 wide and 6 high around (0, 0), y downwards.
const std::vector<Stroke>& StrokesOf(uint32_t digit) {
  static const std::vector<std::vector<Stroke>> kDigits = {
      {{{-1, -3}, {1, -3}, {2, -2}, {2, 2}, {1, 3}, {-1, 3}, {-2, 2}, {-2, -2}, {-1, -3}}},
      {{{-1, -2}, {0, -3}, {0, 3}}, {{-1, 3}, {1, 3}}},
      {{{-2, -2}, {-1, -3}, {1, -3}, {2, -2}, {2, -1}, {-2, 3}, {2, 3}}},
      {{{-2, -3}, {2, -3}, {0, -0.5}, {1, -0.5}, {2, 0.5}, {2, 2}, {1, 3}, {-1, 3}, {-2, 2}}},
      {{{1, 3}, {1, -3}, {-2, 1}, {2, 1}}},
      {{{2, -3}, {-2, -3}, {-2, -0.5}, {1, -0.5}, {2, 0.5}, {2, 2}, {1, 3}, {-2, 3}}},
      {{{1.5, -3},
        {-0.5, -2},
        {-2, 0.5},
        {-2, 2},
        {-1, 3},
        {1, 3},
        {2, 2},
        {2, 1},
        {1, 0},
        {-2, 0.5}}},
      {{{-2, -3}, {2, -3}, {-0.5, 3}}, {{-1, 0}, {1.5, 0}}},
      {{{-1, 0},
        {-2, -1},
        {-2, -2},
        {-1, -3},
        {1, -3},
        {2, -2},
        {2, -1},
        {1, 0},
        {-1, 0},
        {-2, 1},
        {-2, 2},
        {-1, 3},
        {1, 3},
        {2, 2},
        {2, 1},
        {1, 0}}},
      {{{2, -0.5},
        {-1, 0},
        {-2, -1},
        {-2, -2},
        {-1, -3},
        {1, -3},
        {2, -2},
        {2, -0.5},
        {0.5, 2},
        {-1.5, 3}}},
  };
  static_assert(kMnistClasses == 10);
  return kDigits[digit];
}

// Distance of p to the line from a to b.
double Distance(const Point& p, const Point& a, const Point& b) {
  const double dx = b.x - a.x, dy = b.y - a.y;
  const double along = ((p.x - a.x) * dx + (p.y - a.y) * dy) / (dx * dx + dy * dy);
  const double t = Clamp01(along);
  const double ex = p.x - (a.x + t * dx), ey = p.y - (a.y + t * dy);
  return SquareRoot(ex * ex + ey * ey);
}

// The strokes of one image, in pixels.
struct Drawing {
  std::vector<Stroke> strokes;
  double half_width, ground, ink;
  [[nodiscard]] double InkAt(const Point& p) const {
    double most = 0;
    for (const Stroke& stroke : strokes) {
      for (size_t i = 1; i < stroke.size(); ++i) {
        most = std::max(most, Inside(Distance(p, stroke[i - 1], stroke[i]), half_width));
      }
    }
    return most;
  }
};

Drawing Draw(uint32_t digit, Dice& dice) {
  const Point centre = {dice.Between(11, 17), dice.Between(11.5, 16.5)};
  const double width = dice.Between(2.2, 3.2), height = dice.Between(2.6, 3.4);
  const double slant = dice.Between(-0.35, 0.35);
  Drawing drawing;
  drawing.half_width = dice.Between(0.7, 1.5);
  drawing.ground = dice.Between(0, 24);
  drawing.ink = dice.Between(150, 230);
  for (Stroke stroke : StrokesOf(digit)) {
    for (Point& point : stroke) {
      // No two digits of a kind have their corners at the same places.
      const double x = point.x + dice.Between(-0.4, 0.4);
      const double y = point.y + dice.Between(-0.4, 0.4);
      point = {centre.x + width * x - slant * height * y, centre.y + height * y};
    }
    drawing.strokes.push_back(std::move(stroke));
  }
  return drawing;
}

PhiloxStream StreamOf(uint64_t seed, Split split, uint64_t sample) {
  return {seed, PhiloxStream::Purpose::kSampleData, static_cast<uint64_t>(split), sample, "digit"};
}

}  // namespace

uint32_t SampleDigit(uint64_t seed, Split split, uint64_t sample) {
  return StreamOf(seed, split, sample).Below(0, kMnistClasses);
}

void DrawSampleDigit(uint64_t seed, Split split, uint64_t sample, std::span<uint8_t> pixels) {
  RING_CHECK(pixels.size() == size_t{kMnistHeight} * kMnistWidth, "image size");
  constexpr uint64_t kNoise = 1 << 10;  // first element of the noise, past all other draws
  constexpr double kNoiseAmplitude = 32;
  const PhiloxStream stream = StreamOf(seed, split, sample);
  Dice dice(stream);
  const Drawing drawing = Draw(dice.Below(kMnistClasses), dice);
  for (size_t i = 0; i < pixels.size(); ++i) {
    const Point at = {static_cast<double>(i % kMnistWidth), static_cast<double>(i / kMnistWidth)};
    const double noise = SignedUniform(stream.At(kNoise + i));
    pixels[i] = PixelOf(drawing.ground + drawing.ink * drawing.InkAt(at) + kNoiseAmplitude * noise);
  }
}

}  // namespace ringmaster::data
