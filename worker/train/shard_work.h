// Shards on cores: which come next, who computes them, what each gave. Cores take shards from one
// list as they become free, and of scripts first those that are dealt to them, so which core
// computes which shard is a matter of timing - and must not matter. Step thread; the work itself
// runs on the cores' threads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/exact/record.h"
#include "common/status.h"
#include "worker/backend/backend.h"
#include "worker/data/reader.h"
#include "worker/train/training_job.h"

namespace ringmaster::worker {

// The shards among `shards` that have samples in a step's own batch, of training or of predictions.
[[nodiscard]] std::vector<BatchId> WorkOfStep(const v1::ResultSpec& spec,
                                              std::span<const uint32_t> shards, uint64_t step);
// Likewise of a whole evaluated set under S(applied), batch after batch; none when the job has no
// such set.
[[nodiscard]] std::vector<BatchId> EvaluationWork(const v1::ResultSpec& spec,
                                                  std::span<const uint32_t> shards,
                                                  job::SampleSet set, uint64_t applied);

// What is dealt to core number `core` of so many after `id`, at most so much.
[[nodiscard]] std::vector<BatchId> ComingWork(const v1::ResultSpec& spec,
                                              std::span<const uint32_t> shards, const BatchId& id,
                                              size_t core, size_t cores, size_t most);

// Computes all of `work`; results[i], whose end is kOpen, belongs to work[i]. Training adds
// gradients to job->gradients, or to a device's sums, which tells of them by `told`. When
// `abandoned()` becomes true, or after an error, a shard that a core computes runs to its end and
// the rest stays open, as does one whose device went down; abandoned alone is no error: the caller
// knows why.
Status ComputeShards(TrainingJob* job, Reader* reader, std::span<const BatchId> work, SumsTold told,
                     const std::function<bool()>& abandoned, std::span<ShardResult> results);

// How long the core waited for samples that waited longest; and for samples and its device.
[[nodiscard]] double LongestInput(std::span<const ShardResult> results, size_t cores);
[[nodiscard]] double LongestWait(std::span<const ShardResult> results, size_t cores);

// Keeps the flag of the lowest tensor: gradients come in the order of backward.
void KeepFirst(exact::FlagKind kind, uint32_t tensor, exact::DecodedFlag* flag);

// Adds a shard to this worker's record of the step.
void AddToRecord(const ShardResult& result, exact::Record* record);

// The known shard, the check that this worker computes what every other one does, before the first
// step, with every core at work. Of each core: hex SHA-256 of the integers that the last shard of
// step 0 (which is never empty) adds under S(0): all gradients in the order of backward, then the
// scalars record. The state must be S(0); it is not changed.
[[nodiscard]] StatusOr<std::vector<std::string>> KnownShardSha256(TrainingJob* job);
// Seconds that a core takes for the same shard while all compute it: of three, the median of the
// slowest core's. Nothing is kept of them.
[[nodiscard]] StatusOr<double> KnownShardSeconds(TrainingJob* job);

}  // namespace ringmaster::worker
