// From the reduced sums of a step to S(k+1): the same arithmetic in the same order on every worker,
// from reduced values alone. Step thread, with the cores' threads on ranges of blocks.
#pragma once

#include "common/exact/record.h"
#include "common/status.h"
#include "worker/train/training_job.h"

namespace ringmaster::worker {

// FAILED_PRECONDITION names step, shard and tensor when a shard had a value that cannot be added.
// Nothing may be applied then: the state stays S(k).
[[nodiscard]] Status CheckFlags(const StateLayout& layout, uint64_t step,
                                const exact::Record& total);

// Applies one step: dequantizes job->totals, updates parameters, slots, moving statistics, units,
// metrics and digest, and clears job->gradients for the next step. The weights are not refreshed.
void ApplyStep(TrainingJob* job, const exact::Record& total);

}  // namespace ringmaster::worker
