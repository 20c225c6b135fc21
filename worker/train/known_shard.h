// The check that this worker computes what every other one does: one known shard on each core,
// before the first step. Step thread, with every core at work.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"
#include "worker/train/training_job.h"

namespace ringmaster::worker {

// Of each core: hex SHA-256 of the integers that the last shard of step 0 (which is never empty)
// adds under S(0): all gradients in the order of backward, then the scalars record. The state must
// be S(0); it is not changed.
[[nodiscard]] StatusOr<std::vector<std::string>> KnownShardSha256(TrainingJob* job);

}  // namespace ringmaster::worker
