#include "common/graph/augment/image_ops.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/graph/augment/formulas.h"
#include "common/numeric/arithmetic.h"
#include "common/numeric/elementary.h"

namespace ringmaster::graph {
namespace {

// cos of -270 to 270 degrees, exact at multiples of 90.
double CosineOf(double degrees) {
  const double turned = std::abs(degrees) / 180;
  return CosinePi(turned <= 1 ? turned : 2 - turned);
}

// Of one channel at a place that counts from the middle of the first pixel.
class Bilinear {
 public:
  Bilinear(const ImageShape& shape, double y, double x)
      : row_(size_t{shape.width} * shape.channels), channels_(shape.channels) {
    const auto split = [](double place, uint32_t size, size_t* low, size_t* high) {
      const double floor = std::floor(place);
      const auto inside = [&](double at) {
        return static_cast<size_t>(std::clamp(at, 0.0, static_cast<double>(size - 1)));
      };
      *low = inside(floor);
      *high = inside(floor + 1);
      return place - floor;
    };
    down_ = split(y, shape.height, &top_, &bottom_);
    across_ = split(x, shape.width, &left_, &right_);
  }
  [[nodiscard]] float Of(std::span<const float> image, size_t channel) const {
    const auto at = [&](size_t y, size_t x) {
      return double{image[y * row_ + x * channels_ + channel]};
    };
    const auto along = [&](size_t y) {
      const double left = at(y, left_);
      return left + (at(y, right_) - left) * across_;
    };
    const double upper = along(top_);
    return static_cast<float>(upper + (along(bottom_) - upper) * down_);
  }

 private:
  const size_t row_, channels_;
  size_t top_ = 0, bottom_ = 0, left_ = 0, right_ = 0;
  double down_ = 0, across_ = 0;
};

}  // namespace

void Move(const Offset& offset, const ImageShape& shape, std::vector<float>* scratch,
          std::span<float> image) {
  const int64_t height = shape.height, width = shape.width, channels = shape.channels;
  scratch->assign(image.begin(), image.end());
  std::fill(image.begin(), image.end(), 0.0F);
  const int64_t first = std::max<int64_t>(0, -offset.right);
  const int64_t last = std::min(width, width - offset.right);
  for (int64_t y = 0; y < height; ++y) {
    const int64_t from = y + offset.down;
    if (from < 0 || from >= height || first >= last) continue;
    const auto row = scratch->begin() + (from * width + first + offset.right) * channels;
    std::copy(row, row + (last - first) * channels, image.begin() + (y * width + first) * channels);
  }
}

void FlipLeftRight(const ImageShape& shape, std::span<float> image) {
  for (uint32_t y = 0; y < shape.height; ++y) {
    float* const row = image.data() + size_t{y} * shape.width * shape.channels;
    for (uint32_t x = 0; x < shape.width / 2; ++x) {
      float* const left = row + size_t{x} * shape.channels;
      std::swap_ranges(left, left + shape.channels,
                       row + size_t{shape.width - 1 - x} * shape.channels);
    }
  }
}

void Brighten(double delta, std::span<float> image) {
  for (float& x : image) x = Brightened(x, delta);
}

void ScaleContrast(double factor, const ImageShape& shape, std::span<float> image) {
  const size_t channels = shape.channels;
  const size_t pixels = size_t{shape.height} * shape.width;
  for (size_t c = 0; c < channels; ++c) {
    float* const channel = image.data() + c;
    const double sum = LaneSum(pixels, [&](size_t i) { return double{channel[i * channels]}; });
    const double mean = sum / static_cast<double>(pixels);
    for (size_t i = 0; i < pixels; ++i) {
      float& x = channel[i * channels];
      x = Contrasted(x, factor, mean);
    }
  }
}

void Rotate(double degrees, float fill, const ImageShape& shape, std::vector<float>* scratch,
            std::span<float> image) {
  scratch->assign(image.begin(), image.end());
  const double cosine = CosineOf(degrees), sine = CosineOf(degrees - 90);
  const double height = shape.height, width = shape.width;
  const double middle_y = height / 2, middle_x = width / 2;
  float* out = image.data();
  for (uint32_t row = 0; row < shape.height; ++row) {
    for (uint32_t column = 0; column < shape.width; ++column, out += shape.channels) {
      const double down = row + 0.5 - middle_y, across = column + 0.5 - middle_x;
      const double x = cosine * across - sine * down + middle_x;
      const double y = sine * across + cosine * down + middle_y;
      if (x < 0 || x >= width || y < 0 || y >= height) {
        std::fill_n(out, shape.channels, fill);
        continue;
      }
      const Bilinear place(shape, y - 0.5, x - 0.5);
      for (size_t c = 0; c < shape.channels; ++c) out[c] = place.Of(*scratch, c);
    }
  }
}

void Erase(const image::Window& window, std::span<const double> values, const ImageShape& shape,
           std::span<float> image) {
  const size_t channels = shape.channels;
  for (uint32_t y = 0; y < window.size.height; ++y) {
    float* out = image.data() + (size_t{window.top + y} * shape.width + window.left) * channels;
    for (size_t i = 0; i < window.size.width * channels; ++i) {
      out[i] = static_cast<float>(values[values.size() == 1 ? 0 : i % channels]);
    }
  }
}

void Normalize(const v1::Normalize& normalize, std::span<float> image) {
  switch (normalize.kind()) {
    case v1::NORMALIZE_KIND_TF:
      for (float& x : image) x = x / 127.5F - 1.0F;
      return;
    case v1::NORMALIZE_KIND_CAFFE: {
      constexpr float kMean[] = {103.939F, 116.779F, 123.68F};  // blue, green, red
      for (size_t i = 0; i < image.size(); i += 3) {
        std::swap(image[i], image[i + 2]);
        for (size_t c = 0; c < 3; ++c) image[i + c] -= kMean[c];
      }
      return;
    }
    default:
      break;
  }
  const auto channels = static_cast<size_t>(normalize.mean().values_size());
  std::vector<float> mean, deviation;
  for (const double x : normalize.mean().values()) mean.push_back(static_cast<float>(x));
  for (const double x : normalize.std().values()) deviation.push_back(static_cast<float>(x));
  for (size_t i = 0; i < image.size(); i += channels) {
    for (size_t c = 0; c < channels; ++c) {
      image[i + c] = (OfUnitRange(image[i + c]) - mean[c]) / deviation[c];
    }
  }
}

void Standardize(std::span<float> image) {
  const auto n = static_cast<double>(image.size());
  const double mean = LaneSum(image.size(), [&](size_t i) { return double{image[i]}; }) / n;
  const double variance =
      LaneSum(image.size(), [&](size_t i) { return SquaredDeviation(image[i], mean); }) / n;
  const double divisor = StandardDivisor(variance, n);
  for (float& x : image) x = Standardized(x, mean, divisor);
}

}  // namespace ringmaster::graph
