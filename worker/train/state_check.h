// Whether the state of a job is still what this worker wrote. Every update hashes what it reads
// (update.h); this is for when nothing is updated: before a copy goes out, and when somebody asks.
// A state that differs is lost: nothing of it is kept or handed over. Free functions; which thread
// may call them is said at each.
#pragma once

#include <string>

#include "common/status.h"
#include "worker/state/state_hash.h"
#include "worker/train/training_job.h"

namespace ringmaster::worker {

// Hashes all of the state. DATA_LOSS names the step and what differs, and from then on
// job->lost_state does. Under state_mu, on any thread; `for_each` is the caller's.
[[nodiscard]] Status CheckState(TrainingJob* job, const ForEachPiece& for_each)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(job->state_mu);
// On the cores. Step thread.
[[nodiscard]] Status CheckStateOnCores(TrainingJob* job);

// `what` of S(job->state->step) is not what was written: the status that says so. Under state_mu.
[[nodiscard]] Status LoseState(TrainingJob* job, const std::string& what);

// Does what a failpoint `state@STEP=flip:PART` says: changes one bit of the state. Step thread.
void FlipForTests(TrainingJob* job);

}  // namespace ringmaster::worker
