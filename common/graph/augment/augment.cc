#include "common/graph/augment/augment.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/lane_sum.h"
#include "common/philox.h"
#include "common/square_root.h"

namespace ringmaster::graph {
namespace {

using Image = std::span<float>;

// Where the image's own top left corner comes to lie is uniform over the (2 padding + 1)^2 places.
void Crop(uint32_t padding, const ImageShape& shape, const PhiloxStream& stream, Image image) {
  const int64_t height = shape.height, width = shape.width, channels = shape.channels;
  const int64_t down = int64_t{stream.Below(0, 2 * padding + 1)} - padding;
  const int64_t right = int64_t{stream.Below(1, 2 * padding + 1)} - padding;
  const std::vector<float> source(image.begin(), image.end());
  std::fill(image.begin(), image.end(), 0.0F);
  const int64_t first = std::max<int64_t>(0, -right);
  const int64_t last = std::min(width, width - right);
  for (int64_t y = 0; y < height; ++y) {
    const int64_t from = y + down;
    if (from < 0 || from >= height || first >= last) continue;
    const auto row = source.begin() + (from * width + first + right) * channels;
    std::copy(row, row + (last - first) * channels, image.begin() + (y * width + first) * channels);
  }
}

void FlipLeftRight(const ImageShape& shape, Image image) {
  for (uint32_t y = 0; y < shape.height; ++y) {
    float* const row = image.data() + size_t{y} * shape.width * shape.channels;
    for (uint32_t x = 0; x < shape.width / 2; ++x) {
      float* const left = row + size_t{x} * shape.channels;
      std::swap_ranges(left, left + shape.channels,
                       row + size_t{shape.width - 1 - x} * shape.channels);
    }
  }
}

void Standardize(Image image) {
  const auto n = static_cast<double>(image.size());
  const double mean = LaneSum(image.size(), [&](size_t i) { return double{image[i]}; }) / n;
  const double variance = LaneSum(image.size(),
                                  [&](size_t i) {
                                    const double d = double{image[i]} - mean;
                                    return d * d;
                                  }) /
                          n;
  const double divisor = std::max(SquareRoot(variance), 1.0 / SquareRoot(n));
  for (float& x : image) x = static_cast<float>((double{x} - mean) / divisor);
}

}  // namespace

Augmenter::Augmenter(std::vector<v1::Augmentation> augment, ImageShape shape, uint64_t seed)
    : augment_(std::move(augment)), shape_(shape), seed_(seed) {}

void Augmenter::Apply(Use use, uint64_t step, uint64_t sample, std::span<const uint8_t> pixels,
                      std::span<float> out) const {
  RING_CHECK(pixels.size() == shape_.elements() && out.size() == pixels.size(), "image shape");
  std::copy(pixels.begin(), pixels.end(), out.begin());
  bool standardized = false;
  for (size_t i = 0; i < augment_.size(); ++i) {
    // An op's place in the list stands in its key, so that two of a kind draw differently.
    const auto stream = [&](PhiloxStream::Purpose purpose) {
      return PhiloxStream(seed_, purpose, step, sample, std::to_string(i));
    };
    const v1::Augmentation& op = augment_[i];
    if (op.has_per_image_standardization()) {
      Standardize(out);
      standardized = true;
    } else if (use == Use::kEvaluation) {
      continue;
    } else if (op.has_random_crop()) {
      Crop(op.random_crop().padding(), shape_, stream(PhiloxStream::Purpose::kRandomCrop), out);
    } else if (op.has_random_flip()) {
      if (stream(PhiloxStream::Purpose::kRandomFlip).Below(0, 2) == 1) FlipLeftRight(shape_, out);
    }
  }
  if (!standardized) {
    for (float& x : out) x = x / 255.0F;
  }
}

}  // namespace ringmaster::graph
