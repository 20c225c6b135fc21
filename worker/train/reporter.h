// What a run says while it runs: progress to its observer, and a line of the log for whatever a
// user wants to see of it. Owned by a run of the step loop; step thread.
#pragma once

#include <chrono>
#include <cstdint>

#include "worker/ring/link.h"
#include "worker/train/progress.h"
#include "worker/train/step_meter.h"
#include "worker/train/training_job.h"

namespace ringmaster::worker {

class Reporter {
 public:
  // All outlive it; `link` and `observer` may be nullptr.
  Reporter(const TrainingJob* job, const ring::Link* link, Observer* observer);

  // A step with so many samples was applied or skipped; `times` are those of the run so far.
  void StepDone(uint64_t samples, const PhaseTimes& times);
  void Evaluated() const { Report(); }
  // The step in hand is skipped because of `flag`, in words; the state knows the new loss scale.
  void Skipped(const std::string& flag) const;
  // The loss scale was doubled.
  void Grown() const;

 private:
  void Report() const;
  void LogStep();

  const TrainingJob* const job_;
  const ring::Link* const link_;
  Observer* const observer_;
  StepMeter meter_;
  bool first_ = true;  // no step was done yet
  std::chrono::steady_clock::time_point last_line_;
};

}  // namespace ringmaster::worker
