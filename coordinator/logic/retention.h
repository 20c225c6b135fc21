// Which checkpoints of a job stay. Pure; thread-safe (free functions).
#pragma once

#include <cstddef>
#include <vector>

#include "coordinator/logic/record.h"

namespace ringmaster::coordinator {

// The checkpoints of one job, by step.
using CheckpointList = std::vector<CheckpointRecord>;

// The best of a job by checkpoint.best, the oldest of several: after a restore a worker marks
// states as the best that are not. Null when none was marked.
[[nodiscard]] const CheckpointRecord* BestOf(const CheckpointList& checkpoints,
                                             v1::BestMetric metric);

// Puts it in its place; one of the same step is replaced.
void Keep(const CheckpointRecord& checkpoint, CheckpointList& checkpoints);

// Takes out what need not be kept, oldest first: all but the newest and the best. At least two
// newest ones stay: when one does not verify there is another to go back to.
[[nodiscard]] CheckpointList TakeSuperseded(const v1::CheckpointOptions& options,
                                            CheckpointList& checkpoints);

}  // namespace ringmaster::coordinator
