// From the sums of a step to parameters, slots, averages and units of the next state, in one pass
// over pieces that fit a core's cache: sums are hashed, made floating-point and cleared, what is
// updated is hashed before and after, all of it while it is there. Free functions; step thread,
// with the cores' threads on pieces of their own. Under job->state_mu.
#pragma once

#include <string>
#include <vector>

#include "common/exact/digest.h"
#include "worker/train/training_job.h"

namespace ringmaster::worker {

struct PassSums {
  exact::BlockSum totals;  // D of the blocks of gradients
  // As StateSums::trained: before the pass, and after it.
  std::vector<exact::BlockSum> read, written;
  std::string not_finite;  // the first tensor or slot that is not finite now; empty: none
};

// The update number state->updates + 1, and units, not yet those of the step counters. Clears
// job->gradients behind it. kOwn: from job->gradients itself; kRing: from job->totals.
[[nodiscard]] PassSums UpdateWeights(TrainingJob* job, SumSource source);

// The same without an update: `written` is `read`, units stay.
[[nodiscard]] PassSums PassOver(TrainingJob* job, SumSource source);

}  // namespace ringmaster::worker
