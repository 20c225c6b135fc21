// In which order a worker comes to the batches of a job: step after step its shards, and after the
// last step of an epoch those of each set that is evaluated. A job that predicts has a batch of one
// set in each step. A value of the reader's; thread-compatible. It loads nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "worker/data/shard_loader.h"

namespace ringmaster::worker {

class BatchPlan {
 public:
  // From step `start_step` on; `shards` ascending. `loader` outlives it.
  BatchPlan(const ShardLoader* loader, std::vector<uint32_t> shards, uint64_t start_step);

  // The next batch that nobody has taken; nullopt at the end of the job.
  [[nodiscard]] std::optional<BatchId> next() const { return next_; }
  // Goes on to the one after it.
  void Advance();
  // Whoever asks for this one loads it: it is not come to.
  void Take(const BatchId& id);
  // What comes before the batch of `id`, over all shards, is not come to.
  void SkipTo(const BatchId& id);

 private:
  [[nodiscard]] bool Predicts() const;
  void Step();
  void PassEmptySets();  // to the next one, taken or not
  void PassTaken();

  const ShardLoader* const loader_;
  const std::vector<uint32_t> shards_;
  std::optional<BatchId> next_;
  size_t shard_index_ = 0;   // of next_ in shards_
  std::set<BatchId> taken_;  // after next_
};

}  // namespace ringmaster::worker
