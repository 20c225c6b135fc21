#include "worker/train/step_work.h"

#include <algorithm>
#include <utility>

namespace ringmaster::worker {

void StepWork::Begin(std::span<const BatchId> work) {
  const auto in_work = [&](const ShardResult& result) {
    return std::ranges::find(work, result.shard, &BatchId::shard) != work.end();
  };
  if (!std::ranges::all_of(results(), in_work)) Drop();
  missing_.clear();
  for (const BatchId& id : work) {
    const bool kept =
        std::ranges::find(results(), id.shard, &ShardResult::shard) != results().end();
    if (!kept) missing_.push_back(id);
  }
  complete_ = missing_.empty();
  if (results_.size() < folded_ + missing_.size()) results_.resize(folded_ + missing_.size());
  for (ShardResult& result : open()) {
    result.end = ShardEnd::kOpen;
    result.input_seconds = result.outage_seconds = 0;
  }
}

void StepWork::Settle() {
  const std::span<ShardResult> tried = open();
  const auto is = [](ShardEnd end) {
    return [end](const ShardResult& result) { return result.end == end; };
  };
  const bool torn = std::ranges::any_of(tried, is(ShardEnd::kTorn));
  const auto rest = std::ranges::partition(tried, is(ShardEnd::kDone));
  const size_t done = tried.size() - rest.size();
  complete_ = done == tried.size();
  folded_ += done;
  computed_ += done;
  missing_.clear();
  if (torn) Drop();
}

std::vector<uint32_t> StepWork::folded() const {
  std::vector<uint32_t> shards;
  for (const ShardResult& result : results()) shards.push_back(result.shard);
  std::ranges::sort(shards);
  return shards;
}

void StepWork::End() {
  folded_ = 0;
  complete_ = false;
}

void StepWork::Drop() {
  dropped_ += folded_;
  End();
}

}  // namespace ringmaster::worker
