// A held-out set under S(k), on all members of the ring: each computes its shards of every batch,
// and counts are added as integers like any other scalars. S(k) is not touched. Step thread.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "common/job/sample_use.h"
#include "common/status.h"
#include "worker/data/reader.h"
#include "worker/train/reducer.h"
#include "worker/train/shard_work.h"
#include "worker/train/training_job.h"

namespace ringmaster::worker {

// This member's part: one record in which each shard's batches are added in order, whatever core
// computed them; nothing when abandoned.
[[nodiscard]] StatusOr<std::optional<exact::Record>> EvaluateShards(
    TrainingJob* job, Reader* reader, std::span<const uint32_t> shards, job::SampleSet set,
    const std::function<bool()>& abandoned);

// The meaning of the ring's record.
[[nodiscard]] Evaluation ResultOf(uint64_t step, const StateLayout& layout,
                                  const exact::Record& total);

}  // namespace ringmaster::worker
