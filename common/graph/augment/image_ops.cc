#include "common/graph/augment/image_ops.h"

#include <algorithm>
#include <utility>

#include "common/arithmetic.h"
#include "common/graph/augment/formulas.h"

namespace ringmaster::graph {

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
