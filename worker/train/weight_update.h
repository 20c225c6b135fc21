// From the sums of a step to parameters, slots, averages and units of the next state, in passes
// over pieces that fit a core's cache: sums are hashed, made floating-point and cleared, what is
// updated is hashed before and after, all of it while it is there. Owned by whoever ends the step;
// step thread, with the cores' threads on pieces of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
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

// Of one step, either applied or skipped.
class WeightUpdate {
 public:
  // kOwn: from job->gradients itself; kRing: from job->totals.
  WeightUpdate(TrainingJob* job, SumSource source);
  ~WeightUpdate();
  WeightUpdate(const WeightUpdate&) = delete;
  WeightUpdate& operator=(const WeightUpdate&) = delete;

  // Whether there is something to do ahead: where norms scale the update all sums are read before
  // it, else once, with it.
  [[nodiscard]] static bool ReadsAhead(const TrainingJob& job);
  // Reads the sums of some buckets of job->gradients, which are the step's, before it is known what
  // becomes of the step: the job stays as it is. Each bucket once; Apply reads the rest, and what
  // was left when the step was `abandoned`. Needs no lock: nobody else writes the state.
  void ReadAhead(std::span<const uint32_t> buckets, const std::function<bool()>& abandoned);

  // The update number state->updates + 1, and units, not yet those of the step counters. Clears
  // job->gradients behind it. Under job->state_mu.
  [[nodiscard]] PassSums Apply();
  // The same without an update: `written` is `read`, units stay.
  [[nodiscard]] PassSums Skip();

 private:
  class Passes;
  class Norms;
  std::unique_ptr<Passes> passes_;
  std::unique_ptr<Norms> norms_;  // where they scale the update, else nullptr
};

}  // namespace ringmaster::worker
