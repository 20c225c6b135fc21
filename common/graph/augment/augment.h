// Augmentation of one image as formulas: uint8 pixels in, float32 out, a function of (job seed,
// step, sample) and of nothing else. Correctly rounded arithmetic; sums in float64 in the fixed
// lane order (element i to lane i mod 8, lanes pairwise). Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::graph {

struct ImageShape {
  uint32_t height = 0, width = 0, channels = 0;
  size_t elements() const { return size_t{height} * width * channels; }
};

enum class Use : uint8_t { kTraining, kEvaluation };

class Augmenter {
 public:
  // `augment` must be resolved. At evaluation random ops are left out, the others stay. Without
  // per_image_standardization pixels become x / 255.
  Augmenter(std::vector<v1::Augmentation> augment, ImageShape shape, uint64_t seed);

  // `pixels`: height * width * channels uint8 in H,W,C order; `out` as many floats.
  void Apply(Use use, uint64_t step, uint64_t sample, std::span<const uint8_t> pixels,
             std::span<float> out) const;

 private:
  std::vector<v1::Augmentation> augment_;
  ImageShape shape_;
  uint64_t seed_;
};

}  // namespace ringmaster::graph
