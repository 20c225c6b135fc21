// Which checkpoints of a job stay. Pure; thread-safe (free functions).
#pragma once

#include <cstddef>
#include <vector>

#include "coordinator/logic/record.h"

namespace ringmaster::coordinator {

// The checkpoints of one job, by step.
using CheckpointList = std::vector<CheckpointRecord>;

// The best of a job by checkpoint.best: the newest that was the best when it was made. Null when
// there is none.
[[nodiscard]] const CheckpointRecord* BestOf(const CheckpointList& checkpoints);

// Puts it in its place; one of the same step is replaced.
void Keep(const CheckpointRecord& checkpoint, CheckpointList& checkpoints);

// Takes out what need not be kept, oldest first: all but the `keep` newest and the best.
[[nodiscard]] CheckpointList TakeSuperseded(size_t keep, CheckpointList& checkpoints);

}  // namespace ringmaster::coordinator
