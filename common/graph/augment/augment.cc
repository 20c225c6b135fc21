#include "common/graph/augment/augment.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/graph/augment/formulas.h"
#include "common/graph/augment/image_ops.h"
#include "common/philox.h"

namespace ringmaster::graph {
namespace {

std::optional<BilinearResize> ResizeOf(const ImageShape& stored, const ImageShape& model) {
  if (stored.height == model.height && stored.width == model.width) return std::nullopt;
  return BilinearResize(stored, {model.height, model.width, stored.channels});
}

}  // namespace

Augmenter::Augmenter(std::vector<v1::Augmentation> augment, const ImageShape& stored,
                     const ImageShape& model, uint64_t seed)
    : augment_(std::move(augment)),
      stored_(stored),
      shape_(model),
      resize_(ResizeOf(stored, model)),
      seed_(seed) {
  RING_CHECK(stored.channels == model.channels || stored.channels == 1,
             "only grey images become images of more channels");
}

void Augmenter::ToModelShape(std::span<const uint8_t> pixels, ImageScratch* scratch,
                             std::span<float> out) const {
  if (stored_.channels == shape_.channels) {
    if (resize_) {
      resize_->Apply(pixels, &scratch->rows, out);
    } else {
      std::copy(pixels.begin(), pixels.end(), out.begin());
    }
    return;
  }
  std::vector<float>& grey = scratch->image;
  grey.resize(size_t{shape_.height} * shape_.width);
  if (resize_) {
    resize_->Apply(pixels, &scratch->rows, grey);
  } else {
    std::copy(pixels.begin(), pixels.end(), grey.begin());
  }
  float* at = out.data();
  for (const float x : grey) at = std::fill_n(at, shape_.channels, x);
}

void Augmenter::ApplyRandom(size_t place, uint64_t step, uint64_t sample, ImageScratch* scratch,
                            std::span<float> image) const {
  // An operation's place in the list stands in its key, so that two of a kind draw differently.
  const auto stream = [&](PhiloxStream::Purpose purpose) {
    return PhiloxStream(seed_, purpose, step, sample, std::to_string(place));
  };
  using Purpose = PhiloxStream::Purpose;
  const v1::Augmentation& op = augment_[place];
  if (op.has_random_crop()) {
    const uint32_t padding = op.random_crop().padding();
    const PhiloxStream places = stream(Purpose::kRandomCrop);
    Move({CropOffset(places.Below(0, 2 * padding + 1), padding),
          CropOffset(places.Below(1, 2 * padding + 1), padding)},
         shape_, &scratch->image, image);
  } else if (op.has_random_flip()) {
    if (stream(Purpose::kRandomFlip).Below(0, 2) == 1) FlipLeftRight(shape_, image);
  } else if (op.has_random_brightness()) {
    const float u = stream(Purpose::kRandomBrightness).Uniform(0);
    Brighten(BrightnessDelta(u, op.random_brightness().max_delta()), image);
  } else if (op.has_random_contrast()) {
    const v1::RandomContrast& range = op.random_contrast();
    const float u = stream(Purpose::kRandomContrast).Uniform(0);
    ScaleContrast(ContrastFactor(u, range.lower(), range.upper()), shape_, image);
  }
}

void Augmenter::Apply(Use use, uint64_t step, uint64_t sample, std::span<const uint8_t> pixels,
                      ImageScratch* scratch, std::span<float> out) const {
  RING_CHECK(pixels.size() == stored_.elements() && out.size() == shape_.elements(), "image shape");
  ToModelShape(pixels, scratch, out);
  bool standardized = false;
  for (size_t place = 0; place < augment_.size(); ++place) {
    if (augment_[place].has_per_image_standardization()) {
      Standardize(out);
      standardized = true;
    } else if (use == Use::kTraining) {
      ApplyRandom(place, step, sample, scratch, out);
    }
  }
  if (standardized) return;
  for (float& x : out) x = OfUnitRange(x);
}

}  // namespace ringmaster::graph
