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

  struct Moment {
    Time time;
    double cpu_seconds = 0;  // that this process has used, on all threads
  };
  [[nodiscard]] static Moment Now();

  // The run begins at `now`. `stop` outlives it.
  StepClock(const StepClockOptions& options, std::stop_source* stop, const Moment& now);

  void OnProgress(const worker::Progress& progress) override;
  // Likewise, at that moment.
  void Note(const worker::Progress& progress, const Moment& now);

  [[nodiscard]] double first_step_seconds() const { return first_step_seconds_; }
  [[nodiscard]] const std::vector<double>& step_seconds() const { return step_seconds_; }
  // Mean over the measured steps.
  [[nodiscard]] double step_cpu_seconds() const;
  // Means over the measured steps.
  [[nodiscard]] worker::PhaseTimes phases() const;
  [[nodiscard]] double loss() const { return loss_; }

 private:
  static constexpr size_t kFewest = 3;  // steps, however long they take

  const StepClockOptions options_;
  std::stop_source* const stop_;
  Moment last_;
  uint64_t applied_ = 0;
  double first_step_seconds_ = 0;
  double measured_ = 0;  // sum of step_seconds_
  double cpu_measured_ = 0;
  std::vector<double> step_seconds_;
  worker::PhaseTimes before_;  // of the run so far, when the warm-up was over
  worker::PhaseTimes times_;   // at the newest step
  double loss_ = 0;
};

}  // namespace ringmaster::bench
