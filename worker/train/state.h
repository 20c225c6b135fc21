// S(k): everything that step k reads and changes, and nothing else. A pure function of
// (ResolvedJob, k). Owned by the trainer; step thread, or several threads on ranges of their own
// inside one update.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/exact/units.h"
#include "common/sha256.h"
#include "ringmaster/v1/job.pb.h"
#include "worker/train/arena.h"
#include "worker/train/loss_scale.h"
#include "worker/train/state_layout.h"

namespace ringmaster::worker {

// Over the samples of one epoch so far, skipped steps left out; starts anew with the epoch's first
// applied step.
struct EpochMetrics {
  uint64_t epoch = 0;
  double loss_sum = 0;
  uint64_t correct = 0;
  uint64_t samples = 0;
  [[nodiscard]] double loss() const { return samples == 0 ? 0 : loss_sum / double(samples); }
  [[nodiscard]] double accuracy() const {
    return samples == 0 ? 0 : double(correct) / double(samples);
  }
};

struct State {
  // All zero, step 0; Initialize makes it S(0).
  State(std::shared_ptr<const StateLayout> state_layout, int precision_bits);

  std::shared_ptr<const StateLayout> layout;
  Arena<float> parameters;
  std::vector<Arena<float>> slots;  // by slot_names()
  Arena<float> moving_means;        // all normalizations' channels
  Arena<float> moving_variances;
  exact::Units units;
  uint64_t step = 0;     // k: batches, applied or skipped
  uint64_t updates = 0;  // applied updates: Adam's t
  LossScale loss_scale;
  EpochMetrics metrics;
  Sha256Digest digest{};
};

// S(0): drawn parameters, zero slots, moving means 0 and variances 1, the first loss scale,
// digest(0).
void Initialize(const v1::ResultSpec& spec, State* state);

}  // namespace ringmaster::worker
