// mixup and cutmix: what images of one shard take of each other. The partner of a row is the next
// one of its shard, of the last row the first, so that no worker needs what another one has; a
// shard of one row stays as it is. A function of (job seed, step, shard). The share of a row's own
// image is that of its own label, too (common/graph/ops/softmax.h). Thread-safe (immutable).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "common/graph/augment/resize.h"
#include "common/image/decode.h"
#include "common/numeric/philox.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::graph {

// Entries that are done to the images of a shard, not to each image.
[[nodiscard]] bool IsOfShards(const v1::Augmentation& op);

// Beta(alpha, alpha) on [0, 1], 0.05 <= alpha, from elements `first` and on: of alpha 1 the first
// one; else algorithm BA of Cheng, "Generating beta variates with nonintegral shape parameters",
// Communications of the ACM 21 (1978), two elements a try.
[[nodiscard]] double DrawBeta(double alpha, const PhiloxStream& stream, uint64_t first);

// What was drawn for a shard.
struct Mix {
  float share = 1;                      // of a row's own image; 1: nothing is done
  std::optional<image::Window> window;  // that is the partner's; nullopt: all of it is a mean
};

class Mixer {
 public:
  // Of a resolved list; nullopt where it mixes nothing. `images`: as the model gets them.
  static std::optional<Mixer> Of(std::span<const v1::Augmentation> list, const ImageShape& images,
                                 uint64_t seed);

  // Where both are there each shard has one of them, drawn evenly.
  [[nodiscard]] Mix Draw(uint64_t step, uint64_t shard) const;
  // The images of a shard one after the other, in place.
  void Apply(const Mix& mix, std::span<float> images) const;

 private:
  Mixer(std::optional<v1::Mixup> mixup, std::optional<v1::Cutmix> cutmix, const ImageShape& images,
        uint64_t seed)
      : mixup_(std::move(mixup)), cutmix_(std::move(cutmix)), shape_(images), seed_(seed) {}
  [[nodiscard]] Mix DrawWindow(double share, const PhiloxStream& stream) const;

  std::optional<v1::Mixup> mixup_;
  std::optional<v1::Cutmix> cutmix_;
  ImageShape shape_;
  uint64_t seed_;
};

}  // namespace ringmaster::graph
