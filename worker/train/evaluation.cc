#include "worker/train/evaluation.h"

#include <algorithm>
#include <map>
#include <vector>

namespace ringmaster::worker {

StatusOr<std::optional<exact::Record>> EvaluateShards(TrainingJob* job, Reader* reader,
                                                      std::span<const uint32_t> shards,
                                                      job::SampleSet set,
                                                      const std::function<bool()>& abandoned) {
  exact::Record record(job->spec().shards(), 0);
  const std::vector<BatchId> work = EvaluationWork(job->spec(), shards, set, job->state->step);
  std::vector<ShardResult> results(work.size());
  RING_RETURN_IF_ERROR(ComputeShards(job, reader, work, abandoned, results));
  const auto done = [](const ShardResult& result) { return result.end == ShardEnd::kDone; };
  if (!std::ranges::all_of(results, done)) return std::nullopt;
  std::map<uint32_t, ShardResult> by_shard;
  for (size_t i = 0; i < work.size(); ++i) {
    ShardResult& sum = by_shard[results[i].shard];
    sum.shard = results[i].shard;
    sum.samples += results[i].samples;
    sum.output.loss_sum += results[i].output.loss_sum;
    sum.output.correct += results[i].output.correct;
  }
  for (const auto& [shard, sum] : by_shard) AddToRecord(sum, &record);
  return record;
}

Evaluation ResultOf(uint64_t step, const exact::Record& total) {
  Evaluation result;
  result.step = step;
  if (total.samples() == 0) return result;
  const auto samples = static_cast<double>(total.samples());
  result.accuracy = static_cast<double>(total.correct()) / samples;
  const bool finite = total.first_flag().flag.kind == exact::FlagKind::kNone;
  if (finite) result.loss = total.loss_sum() / samples;
  return result;
}

}  // namespace ringmaster::worker
