// Loads coming shards ahead of the trainer, on one thread of its own, and has the pixels of the
// next ones brought to the device where there is an input stage. What a batch contains never
// depends on timing: a batch that is asked for and not yet begun is loaded by the caller itself, so
// that a slow reader costs time and nothing else, and no order of requests can wait for ever.
//
// Owned by the step loop, one for each assignment (a worker's shards and first step). Get is
// thread-safe, called by the cores; the destructor stops the thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"
#include "worker/data/shard_loader.h"

namespace ringmaster::worker {

struct ReaderOptions {
  std::vector<uint32_t> shards;  // that this worker computes, ascending
  uint64_t start_step = 0;       // K: the first training step
  size_t ahead = 0;              // batches held at most; 0: two steps' worth
  InputStage* stage = nullptr;   // of the loader's pixels; outlives the reader and its batches
};

class Reader {
 public:
  Reader(std::shared_ptr<const ShardLoader> loader, ReaderOptions options);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // The batch, once: asking again loads it again. DEADLINE_EXCEEDED when the thread was still at it
  // at `deadline`; CANCELLED after Stop(); else the loader's error.
  [[nodiscard]] StatusOr<std::shared_ptr<const ShardBatch>> Get(
      const BatchId& id, std::chrono::steady_clock::time_point deadline);

  // Batches that are ready and not yet asked for; at most options.ahead.
  [[nodiscard]] size_t held() const;

  // Wakes every waiter with CANCELLED and ends the thread after the batch in hand. Idempotent.
  void Stop();

 private:
  using Result = StatusOr<std::shared_ptr<ShardBatch>>;
  void Run(const std::stop_token& stop);
  // Work of the thread; each holds the lock but for what takes long.
  void LoadNext();
  void BringNext();
  [[nodiscard]] bool may_load() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return cursor_.has_value() && ready_.size() < ahead_;
  }
  // The first ready batch whose pixels the stage does not have, where it may have a free slot.
  [[nodiscard]] std::shared_ptr<ShardBatch> ToBring() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The trainer has come to the batch of `id`: whatever comes before that batch is forgotten, and
  // not read if it was not yet.
  void SkipTo(const BatchId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The next batch of the plan that nobody has taken; nullopt at its end.
  std::optional<BatchId> Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<const ShardLoader> loader_;
  const ReaderOptions options_;
  const size_t ahead_;

  mutable Mutex mu_;
  Condition changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<BatchId> cursor_ ABSL_GUARDED_BY(mu_);   // next of the plan; nullopt at its end
  size_t shard_index_ ABSL_GUARDED_BY(mu_) = 0;          // of cursor_ in options_.shards
  std::optional<BatchId> loading_ ABSL_GUARDED_BY(mu_);  // in hand, or being brought
  bool slot_free_ ABSL_GUARDED_BY(mu_) = true;           // of the stage, as far as is known
  std::map<BatchId, Result> ready_ ABSL_GUARDED_BY(mu_);
  std::set<BatchId> taken_ ABSL_GUARDED_BY(mu_);  // ahead of cursor_, loaded by their callers

  std::jthread thread_;  // last: it uses everything above
};

}  // namespace ringmaster::worker
