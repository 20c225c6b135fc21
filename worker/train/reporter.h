// What a run says while it runs, and how fast it goes.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "worker/ring/link.h"
#include "worker/train/progress.h"
#include "worker/train/training_job.h"

namespace ringmaster::worker {

// Means over the last few steps: samples a second, and where a step's time went. Step thread; a
// value, never part of any result. Steps are counted from end to end, so evaluations and
// checkpoints between them are in the means too.
class StepMeter {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit StepMeter(Time now) { points_[0].time = now; }

  // A step with so many samples ended at `now`; `times` are those of the run so far.
  void Add(uint64_t samples, const PhaseTimes& times, Time now) {
    const uint64_t total = newest().samples + samples;
    points_[++count_ % kPoints] = {now, total, times};
  }
  // All of them 0 before the first step.
  [[nodiscard]] double samples_per_second() const {
    const double elapsed = seconds(oldest(), newest());
    return elapsed <= 0 ? 0 : double(newest().samples - oldest().samples) / elapsed;
  }
  [[nodiscard]] double step_seconds() const {
    return steps() == 0 ? 0 : seconds(oldest(), newest()) / double(steps());
  }
  // Of the run so far.
  [[nodiscard]] const PhaseTimes& run_times() const { return newest().times; }
  [[nodiscard]] PhaseTimes step_times() const {
    PhaseTimes means;
    if (steps() == 0) return means;
    for (double PhaseTimes::*const phase :
         {&PhaseTimes::input, &PhaseTimes::compute, &PhaseTimes::ring_wait,
          &PhaseTimes::ring_transfer, &PhaseTimes::update, &PhaseTimes::evaluate,
          &PhaseTimes::checkpoint, &PhaseTimes::input_work}) {
      means.*phase = (newest().times.*phase - oldest().times.*phase) / double(steps());
    }
    return means;
  }

 private:
  static constexpr size_t kPoints = 33;  // of 32 steps
  struct Point {
    Time time;
    uint64_t samples = 0;  // so far
    PhaseTimes times;      // so far
  };
  static double seconds(const Point& from, const Point& to) {
    return std::chrono::duration<double>(to.time - from.time).count();
  }
  [[nodiscard]] const Point& newest() const { return points_[count_ % kPoints]; }
  [[nodiscard]] const Point& oldest() const {
    return points_[count_ < kPoints ? 0 : (count_ + 1) % kPoints];
  }
  [[nodiscard]] size_t steps() const { return count_ < kPoints ? count_ : kPoints - 1; }

  std::array<Point, kPoints> points_{};
  size_t count_ = 0;  // of steps
};

// What a run says while it runs: progress to its observer, and a line of the log for whatever a
// user wants to see of it. Owned by a run of the step loop; step thread.
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
