// What the progress of one job says that is worth an event: evaluations, skipped steps, changes of
// the loss scale. Owned by Logic, one a run, loop thread only. Of two evaluations with equal
// numbers one is told. A run of skipped steps is one event, told when it ended; changes of the loss
// scale and ends of such runs are told at most every kQuiet, so that a job which skips for ever
// does not push everything else out of the list.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/logic/event.h"
#include "coordinator/logic/job_events.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::coordinator {

class ProgressEvents {
 public:
  static constexpr std::chrono::milliseconds kQuiet{10'000};

  // `status` after each progress; step, updates and the metrics are looked at.
  [[nodiscard]] std::vector<Happening> Observe(const v1::JobStatus& status, Now now);
  // What was held back; the job ended.
  [[nodiscard]] std::vector<Happening> Flush();

 private:
  using Time = std::chrono::milliseconds;
  void ObserveEvaluation(const v1::JobStatus& status, std::vector<Happening>& told);
  void ObserveSkips(const v1::JobStatus& status, Now now, std::vector<Happening>& told);
  void ObserveScale(const v1::JobStatus& status, Now now, std::vector<Happening>& told);
  void TellSkips(std::vector<Happening>& told);
  void TellScale(std::vector<Happening>& told);
  static bool Quiet(const std::optional<Time>& told_at, Now now) {
    return told_at && now.steady - *told_at < kQuiet;
  }

  std::string evaluation_;                                // the newest
  uint64_t step_ = 0, skipped_ = 0;                       // of the newest progress
  uint64_t run_begin_ = 0, run_end_ = 0, run_skips_ = 0;  // steps (begin, end], not told yet
  std::optional<Time> skips_told_at_;
  std::optional<double> scale_, scale_told_;
  uint64_t scale_step_ = 0;
  std::optional<Time> scale_told_at_;
};

}  // namespace ringmaster::coordinator
