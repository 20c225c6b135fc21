// Loads coming shards ahead of the trainer, on one thread of its own. What a batch contains never
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
  using Result = StatusOr<std::shared_ptr<const ShardBatch>>;
  void Run(const std::stop_token& stop);
  // The trainer has come to the batch of `id`: whatever comes before that batch is forgotten, and
  // not read if it was not yet.
  void SkipTo(const BatchId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The next batch of the plan that nobody has taken; nullopt at its end.
  std::optional<BatchId> Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<const ShardLoader> loader_;
  const ReaderOptions options_;

  mutable Mutex mu_;
  Condition changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<BatchId> cursor_ ABSL_GUARDED_BY(mu_);   // next of the plan; nullopt at its end
  size_t shard_index_ ABSL_GUARDED_BY(mu_) = 0;          // of cursor_ in options_.shards
  std::optional<BatchId> loading_ ABSL_GUARDED_BY(mu_);  // in hand
  std::map<BatchId, Result> ready_ ABSL_GUARDED_BY(mu_);
  std::set<BatchId> taken_ ABSL_GUARDED_BY(mu_);  // ahead of cursor_, loaded by their callers

  std::jthread thread_;  // last: it uses everything above
};

}  // namespace ringmaster::worker
