#include "common/graph/augment/color_jitter.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/numeric/arithmetic.h"

namespace ringmaster::graph {
namespace {

float Clipped(double x) { return static_cast<float>(std::clamp(x, 0.0, 255.0)); }

double GreyOf(const float* pixel) {
  return (19595 * double{pixel[0]} + 38470 * double{pixel[1]} + 7471 * double{pixel[2]}) / 65536;
}

void ScaleBrightness(double factor, std::span<float> image) {
  for (float& x : image) x = Clipped(double{x} * factor);
}

// About one value for the whole image: the mean of the grey one.
void ScaleAboutMean(double factor, uint32_t channels, std::span<float> image) {
  const size_t pixels = image.size() / channels;
  const double sum = LaneSum(pixels, [&](size_t i) {
    const float* const pixel = image.data() + i * channels;
    return channels == 1 ? double{*pixel} : GreyOf(pixel);
  });
  const double mean = sum / static_cast<double>(pixels);
  for (float& x : image) x = Clipped((double{x} - mean) * factor + mean);
}

void ScaleAboutGrey(double factor, std::span<float> image) {
  for (size_t i = 0; i < image.size(); i += 3) {
    const double grey = GreyOf(image.data() + i);
    for (size_t c = 0; c < 3; ++c) {
      float& x = image[i + c];
      x = Clipped((double{x} - grey) * factor + grey);
    }
  }
}

// Where red, green and blue lie on the circle, 0 to 6 from red over green; of unequal ones. Smith:
// "Color gamut transform pairs", SIGGRAPH 1978.
double HueOf(double red, double green, double blue, double largest, double range) {
  if (largest == red) {
    const double hue = (green - blue) / range;
    return hue < 0 ? hue + 6 : hue;
  }
  return largest == green ? (blue - red) / range + 2 : (red - green) / range + 4;
}

// Turned by 0 to 6; the least and the largest value stay as they are.
void TurnHue(double by, float* pixel) {
  const auto [least, largest] = std::minmax({double{pixel[0]}, double{pixel[1]}, double{pixel[2]}});
  const double range = largest - least;
  if (range == 0) return;
  double hue = HueOf(pixel[0], pixel[1], pixel[2], largest, range) + by;
  if (hue >= 6) hue -= 6;
  const auto sector = static_cast<int>(hue);
  const double rest = hue - sector;
  // In an even sector one channel rises, in an odd one another falls.
  const double between = least + range * (sector % 2 == 0 ? rest : 1 - rest);
  struct Places {
    uint8_t largest, between, least;  // channels
  };
  constexpr Places kPlaces[] = {{0, 1, 2}, {1, 0, 2}, {1, 2, 0}, {2, 1, 0}, {2, 0, 1}, {0, 2, 1}};
  const Places& places = kPlaces[std::clamp(sector, 0, 5)];
  pixel[places.largest] = Clipped(largest);
  pixel[places.between] = Clipped(between);
  pixel[places.least] = Clipped(least);
}

}  // namespace

JitterDraw DrawJitter(const v1::ColorJitter& jitter, const PhiloxStream& stream) {
  const auto factor = [&](uint64_t element, double most) {
    const double low = std::max(0.0, 1 - most);
    return low + (1 + most - low) * double{stream.Uniform(element)};
  };
  JitterDraw draw = {
      .brightness = factor(0, jitter.brightness()),
      .contrast = factor(1, jitter.contrast()),
      .saturation = factor(2, jitter.saturation()),
      .hue = (2 * double{stream.Uniform(3)} - 1) * jitter.hue(),
      .order = {Jitter::kBrightness, Jitter::kContrast, Jitter::kSaturation, Jitter::kHue}};
  for (uint32_t i = 3; i > 0; --i) {  // Fisher and Yates
    std::swap(draw.order[i], draw.order[stream.Below(7 - i, i + 1)]);
  }
  return draw;
}

void ApplyJitter(const JitterDraw& draw, const ImageShape& shape, std::span<float> image) {
  RING_CHECK(shape.channels == 1 || shape.channels == 3, "an image of one or three channels");
  const bool coloured = shape.channels == 3;
  for (const Jitter jitter : draw.order) {
    if (jitter == Jitter::kBrightness && draw.brightness != 1) {
      ScaleBrightness(draw.brightness, image);
    } else if (jitter == Jitter::kContrast && draw.contrast != 1) {
      ScaleAboutMean(draw.contrast, shape.channels, image);
    } else if (jitter == Jitter::kSaturation && draw.saturation != 1 && coloured) {
      ScaleAboutGrey(draw.saturation, image);
    } else if (jitter == Jitter::kHue && draw.hue != 0 && coloured) {
      const double by = 6 * (draw.hue < 0 ? draw.hue + 1 : draw.hue);
      for (size_t i = 0; i < image.size(); i += 3) TurnHue(by, image.data() + i);
    }
  }
}

}  // namespace ringmaster::graph
