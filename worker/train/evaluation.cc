#include "worker/train/evaluation.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <vector>

namespace ringmaster::worker {

StatusOr<std::optional<exact::Record>> EvaluateShards(TrainingJob* job, Reader* reader,
                                                      std::span<const uint32_t> shards,
                                                      job::SampleSet set,
                                                      const std::function<bool()>& abandoned) {
  exact::Record record(job->layout->evaluation_record(job->spec().shards()));
  const std::vector<BatchId> work = EvaluationWork(job->spec(), shards, set, job->state->step);
  std::vector<ShardResult> results(work.size());
  RING_RETURN_IF_ERROR(ComputeShards(job, reader, work, SumsTold::kAtEnd, abandoned, results));
  const auto done = [](const ShardResult& result) { return result.end == ShardEnd::kDone; };
  if (!std::ranges::all_of(results, done)) return std::nullopt;
  std::map<uint32_t, ShardResult> by_shard;
  for (size_t i = 0; i < work.size(); ++i) {
    ShardResult& sum = by_shard[results[i].shard];
    sum.shard = results[i].shard;
    sum.samples += results[i].samples;
    sum.output.scalars.resize(results[i].output.scalars.size());
    std::ranges::transform(sum.output.scalars, results[i].output.scalars,
                           sum.output.scalars.begin(), std::plus<>());
  }
  for (const auto& [shard, sum] : by_shard) AddToRecord(sum, &record);
  return record;
}

Evaluation ResultOf(uint64_t step, const StateLayout& layout, const exact::Record& total) {
  Evaluation result = {.step = step};
  std::vector<double> sums = total.scalars();
  if (total.first_flag().flag.kind != exact::FlagKind::kNone) {
    // Some shard's real values added 0; whichever it was, counts are whole.
    for (size_t i = 0; i < sums.size(); ++i) {
      if (!layout.scalars()[i].counts) sums[i] = std::numeric_limits<double>::quiet_NaN();
    }
  }
  result.metrics = graph::MetricsOf(layout.outputs(), sums, total.samples());
  return result;
}

}  // namespace ringmaster::worker
