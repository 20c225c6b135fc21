// What ringctl tells the shell. Thread-safe (free functions).
#pragma once

#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::cli {

enum class ExitCode : int {
  kOk = 0,
  kOther = 1,  // anything that has no number of its own
  kUsage = 2,  // the command line or the job file
  kJobFailed = 3,
  kJobCancelled = 4,
  kUnreachable = 5,
  kTimedOut = 124,  // as timeout(1)
};

// INVALID_ARGUMENT is the user's input; UNAVAILABLE and DEADLINE_EXCEEDED mean that no coordinator
// answered (Client lets only those two mean that); the rest has no number of its own.
[[nodiscard]] ExitCode ExitCodeOf(const Status& status);

// Of a job that reached a final state; kOther for any other state.
[[nodiscard]] ExitCode ExitCodeOf(v1::JobState state);
[[nodiscard]] bool IsFinal(v1::JobState state);

}  // namespace ringmaster::cli
