// From the reduced sums of a step to S(k+1): the same arithmetic in the same order on every worker,
// from reduced values alone. Step thread, with the cores' threads on ranges of blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/exact/record.h"
#include "common/status.h"
#include "worker/train/training_job.h"
#include "worker/train/weight_update.h"

namespace ringmaster::worker {

enum class Verdict : uint8_t { kApply, kSkip };

// What the flags of a step's record make of it: no flag, kApply; a flag in mixed_float16, kSkip.
// FAILED_PRECONDITION names step, shard and tensor where nothing may follow: a flag under another
// policy, or a loss scale that would fall under 1. The state then stays S(k).
[[nodiscard]] StatusOr<Verdict> Judge(const TrainingJob& job, const exact::Record& total);

// In words, the first flagged shard: `the gradient of fc1/kernel of shard 3 is not finite (...)`.
[[nodiscard]] std::string DescribeFlag(const StateLayout& layout, const exact::Record& total);

// A step's sums: where they are, and the update that has read some of them already, or nullptr.
struct ReducedSums {
  SumSource source = SumSource::kOwn;
  std::unique_ptr<WeightUpdate> begun;
};

// Applies one step: makes gradients of the sums, updates parameters, slots, moving statistics,
// units, loss scale, metrics and digest, and clears job->gradients and job->step_work for the next
// step. The weights are not refreshed. Holds state_mu all the time, so that no copy has half an
// update. DATA_LOSS: what was read is not what was written; FAILED_PRECONDITION: a value is not
// finite now; else the device's error. After any of them the state is lost, and job->lost_state
// says why.
[[nodiscard]] Status ApplyStep(TrainingJob* job, const exact::Record& total, ReducedSums sums);

// Ends a step without an update: the digest and the step go on, the loss scale is halved, units are
// those of step 0; all else stays as it was. Clears and locks likewise.
[[nodiscard]] Status SkipStep(TrainingJob* job, const exact::Record& total, ReducedSums sums);

// Ends a step of predictions: the rows of its batch are part of the state from now on, and of the
// digest. Clears and locks likewise.
void TakeRows(TrainingJob* job, const exact::Record& total, const RowBits& rows);

// What this worker has of the rows of the step in hand: of its shards' results.
[[nodiscard]] RowBits OwnRows(const TrainingJob& job);

}  // namespace ringmaster::worker
