// Where a job is in its epochs, and which one a new status has ended. Values; thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ringmaster/v1/job.pb.h"

namespace ringmaster::cli {

// An epoch's last step belongs to it: after 94 of 94 steps the place is epoch 1, step 94.
struct EpochPlace {
  uint64_t number = 1;  // from 1
  uint64_t count = 1;   // of the job
  uint64_t step = 0;    // applied in this epoch
  uint64_t steps = 1;   // of this epoch; the last one of a job with `steps` may be shorter
};

// nullopt until the data are known. A coordinator that does not say how long an epoch is: what
// `epochs` makes of the total, else the whole job is one.
[[nodiscard]] std::optional<EpochPlace> PlaceOf(const v1::JobStatus& status);

// What is left of the epoch, of the job, and one step, in seconds at the present speed; nullopt
// when nothing runs.
[[nodiscard]] std::optional<double> EpochSecondsLeft(const v1::JobStatus& status);
[[nodiscard]] std::optional<double> JobSecondsLeft(const v1::JobStatus& status);
[[nodiscard]] std::optional<double> StepSeconds(const v1::JobStatus& status);

// An epoch that is over: metrics of training as last told inside it, evaluations as told after it.
struct EndedEpoch {
  EpochPlace place;  // `step` below `steps` when the job ended in it
  v1::JobStatus status;
  std::optional<double> step_seconds;  // mean of the steps that were seen
};

class EpochTracker {
 public:
  // The epochs that ended with this status or are known to have ended because of it, oldest first;
  // with a final status also the one that the job was in, unless it is the first status.
  [[nodiscard]] std::vector<EndedEpoch> Update(const v1::JobStatus& status);

 private:
  void Begin(const EpochPlace& place, const v1::JobStatus& status);
  [[nodiscard]] EndedEpoch Close() const;

  std::optional<EndedEpoch> open_;  // the newest place and status
  // When and at which step of the job the count of the open epoch begins; 0 ms: not known.
  int64_t counted_from_unix_ms_ = 0;
  uint64_t counted_from_step_ = 0;
};

}  // namespace ringmaster::cli
