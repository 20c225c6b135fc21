#include "common/graph/augment/augment.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/graph/augment/color_jitter.h"
#include "common/graph/augment/formulas.h"
#include "common/graph/augment/geometry.h"
#include "common/graph/augment/image_ops.h"
#include "common/numeric/philox.h"

namespace ringmaster::graph {
namespace {

std::optional<BilinearResize> ResizeOf(const ImageShape& stored, const ImageShape& model) {
  if (stored.height == model.height && stored.width == model.width) return std::nullopt;
  return BilinearResize(stored, {model.height, model.width, stored.channels});
}

}  // namespace

bool IsRandom(const v1::Augmentation& op) {
  return op.has_random_crop() || op.has_random_flip() || op.has_random_brightness() ||
         op.has_random_contrast() || op.has_random_resized_crop() || op.has_color_jitter() ||
         op.has_random_rotation() || op.has_random_erasing() || op.has_mixup() || op.has_cutmix();
}

std::vector<v1::Augmentation> ForEvaluation(std::span<const v1::Augmentation> training) {
  std::vector<v1::Augmentation> list;
  for (const v1::Augmentation& op : training) {
    if (!IsRandom(op)) {
      list.push_back(op);
    } else if (op.has_random_resized_crop()) {
      const v1::RandomResizedCrop& crop = op.random_resized_crop();
      v1::ResizeImage& resize = *list.emplace_back().mutable_resize();
      const auto longer = std::ranges::max_element(crop.size().values());
      if (longer == crop.size().values().end()) continue;  // the rules of its keys say so
      resize.set_short_((8 * *longer + 3) / 7);
      resize.set_filter(crop.filter());
      resize.set_antialias(true);
      *list.emplace_back().mutable_center_crop()->mutable_size() = crop.size();
    } else if (Geometry::IsGeometric(op)) {
      *list.emplace_back().mutable_center_crop()->mutable_size() = op.random_crop().size();
    }
  }
  return list;
}

Augmenter::Augmenter(const std::vector<v1::Augmentation>& training, const ImageShape& stored,
                     const ImageShape& model, uint64_t seed)
    : Augmenter(training, ForEvaluation(training), stored, model, seed) {}

Augmenter::Augmenter(std::vector<v1::Augmentation> training,
                     std::vector<v1::Augmentation> evaluation, const ImageShape& stored,
                     const ImageShape& model, uint64_t seed)
    : training_(std::move(training)),
      evaluation_(std::move(evaluation)),
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

bool Augmenter::ApplyOne(const v1::Augmentation& op, size_t place, uint64_t step, uint64_t sample,
                         ImageScratch* scratch, std::span<float> image) const {
  // An operation's place in the list stands in its key, so that two of a kind draw differently.
  const auto stream = [&](PhiloxStream::Purpose purpose) {
    return PhiloxStream(seed_, purpose, step, sample, std::to_string(place));
  };
  using Purpose = PhiloxStream::Purpose;
  if (op.has_per_image_standardization()) {
    Standardize(image);
    return true;
  }
  if (op.has_normalize()) {
    Normalize(op.normalize(), image);
    return true;
  }
  if (Geometry::IsGeometric(op)) return false;
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
  } else if (op.has_color_jitter()) {
    ApplyJitter(DrawJitter(op.color_jitter(), stream(Purpose::kColorJitter)), shape_, image);
  } else if (op.has_random_rotation()) {
    const auto& range = op.random_rotation().degrees().values();
    const double u = stream(Purpose::kRandomRotation).Uniform(0);
    Rotate(range[0] + (range[1] - range[0]) * u, static_cast<float>(op.random_rotation().fill()),
           shape_, &scratch->image, image);
  } else if (op.has_random_erasing()) {
    const auto window = ErasedWindow(op.random_erasing(), {shape_.height, shape_.width},
                                     stream(Purpose::kRandomErasing));
    const auto& values = op.random_erasing().value().values();
    if (window) Erase(*window, {values.data(), static_cast<size_t>(values.size())}, shape_, image);
  }
  return false;
}

void Augmenter::Apply(Use use, uint64_t step, uint64_t sample, std::span<const uint8_t> pixels,
                      ImageScratch* scratch, std::span<float> out) const {
  RING_CHECK(pixels.size() == stored_.elements() && out.size() == shape_.elements(), "image shape");
  ToModelShape(pixels, scratch, out);
  const std::vector<v1::Augmentation>& list = operations(use);
  bool another_range = false;
  for (size_t place = 0; place < list.size(); ++place) {
    another_range |= ApplyOne(list[place], place, step, sample, scratch, out);
  }
  if (another_range) return;
  for (float& x : out) x = OfUnitRange(x);
}

}  // namespace ringmaster::graph
