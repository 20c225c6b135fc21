// Watches a run: how long each step took, from the last word of the step before to the end of its
// own update; evaluations between them are left out. Ends the run when it has gone on for long
// enough. Called on the step thread; read when the run is over.
#pragma once

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <vector>

#include "worker/train/progress.h"

namespace ringmaster::bench {

struct StepClockOptions {
  uint64_t warm_up = 1;  // steps that are not measured, at least one
  double seconds = 0;    // of measured steps after which it requests a stop; 0: never
};

class StepClock : public worker::Observer {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // The run begins at `now`. `stop` outlives it.
  StepClock(const StepClockOptions& options, std::stop_source* stop, Time now);

  void OnProgress(const worker::Progress& progress) override;
  // Likewise, at that time.
  void Note(const worker::Progress& progress, Time now);

  [[nodiscard]] double first_step_seconds() const { return first_step_seconds_; }
  [[nodiscard]] const std::vector<double>& step_seconds() const { return step_seconds_; }
  // Means over the measured steps.
  [[nodiscard]] worker::PhaseTimes phases() const;
  [[nodiscard]] double loss() const { return loss_; }

 private:
  static constexpr size_t kFewest = 3;  // steps, however long they take

  const StepClockOptions options_;
  std::stop_source* const stop_;
  Time last_;
  uint64_t applied_ = 0;
  double first_step_seconds_ = 0;
  double measured_ = 0;  // sum of step_seconds_
  std::vector<double> step_seconds_;
  worker::PhaseTimes before_;  // of the run so far, when the warm-up was over
  worker::PhaseTimes times_;   // at the newest step
  double loss_ = 0;
};

}  // namespace ringmaster::bench
