// Augmentation of one image as formulas: stored uint8 pixels in, the model's float32 image out, a
// function of (job seed, step, sample) and of nothing else. Correctly rounded arithmetic; sums in
// float64 in the fixed lane order (common/numeric/arithmetic.h). Thread-safe (immutable).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/graph/augment/resize.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::graph {

enum class Use : uint8_t { kTraining, kEvaluation };

// Memory that one thread reuses from image to image. What is in it means nothing.
struct ImageScratch {
  std::vector<float> rows, image;
};

[[nodiscard]] bool IsRandom(const v1::Augmentation& op);

// The name of an operation that no device has a kernel for, so that hosts make the images; nullptr
// of the others. Inline: a backend's library links nothing of this folder.
[[nodiscard]] inline const char* HostsAlone(const v1::Augmentation& op) {
  switch (op.kind_case()) {
    case v1::Augmentation::kNormalize:
      return "normalize";
    case v1::Augmentation::kColorJitter:
      return "color_jitter";
    case v1::Augmentation::kRandomRotation:
      return "random_rotation";
    case v1::Augmentation::kRandomErasing:
      return "random_erasing";
    case v1::Augmentation::kMixup:
      return "mixup";
    case v1::Augmentation::kCutmix:
      return "cutmix";
    default:
      return nullptr;
  }
}

// What is done to samples that are evaluated where a job does not say it: what is done to those of
// training without what is random. Of a window at a random place the middle one; of one of random
// area too, after resizing to 8/7 of its longer side.
[[nodiscard]] std::vector<v1::Augmentation> ForEvaluation(
    std::span<const v1::Augmentation> training);

class Augmenter {
 public:
  // Both lists must be resolved: of training samples, and of all others, which has nothing random.
  // `stored` is what geometry (geometry.h) makes of images, if there is any; `model` differs from
  // `stored` in height and width, which resizes, and in channels when those of a grey image are
  // repeated: one, as many as the model wants.
  Augmenter(std::vector<v1::Augmentation> training, std::vector<v1::Augmentation> evaluation,
            const ImageShape& stored, const ImageShape& model, uint64_t seed);
  // With ForEvaluation(training).
  Augmenter(const std::vector<v1::Augmentation>& training, const ImageShape& stored,
            const ImageShape& model, uint64_t seed);

  // In this order: float, resize, repeat channels, the operations of the list one after the other
  // on values of 0 to 255, but for the geometric ones and those of a shard; and x / 255 unless one
  // of them standardized or normalized. `pixels` and `out` in H,W,C order.
  void Apply(Use use, uint64_t step, uint64_t sample, std::span<const uint8_t> pixels,
             ImageScratch* scratch, std::span<float> out) const;

  // What it does, for those who do the same elsewhere.
  [[nodiscard]] const std::vector<v1::Augmentation>& operations(Use use) const {
    return use == Use::kTraining ? training_ : evaluation_;
  }
  [[nodiscard]] const ImageShape& stored() const { return stored_; }
  [[nodiscard]] const ImageShape& model() const { return shape_; }
  // Nullopt where heights and widths are the same.
  [[nodiscard]] const std::optional<BilinearResize>& resize() const { return resize_; }

 private:
  void ToModelShape(std::span<const uint8_t> pixels, ImageScratch* scratch,
                    std::span<float> out) const;
  // True when the operation leaves values of another range than 0 to 255.
  bool ApplyOne(const v1::Augmentation& op, size_t place, uint64_t step, uint64_t sample,
                ImageScratch* scratch, std::span<float> image) const;

  const std::vector<v1::Augmentation> training_, evaluation_;
  const ImageShape stored_, shape_;
  const std::optional<BilinearResize> resize_;  // of stored channels
  const uint64_t seed_;
};

}  // namespace ringmaster::graph
