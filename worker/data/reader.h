// Loads coming batches ahead of the trainer, on threads of its own, and has the pixels of the next
// ones brought to the device where there is an input stage. A thread's unit of work is a run of
// rows of one batch, which go into places that were there before: neither how many threads there
// are nor who is first changes a byte. Who asks for a batch that is not whole helps to load it, so
// that a slow reader, or one without threads, costs time and nothing else, and no order of requests
// can wait for ever.
//
//   planned -> opened (room for its rows) -> runs of rows, oldest batch first -> whole -> asked for
//
// Owned by the step loop, one for each assignment (a worker's shards and first step). Get is
// thread-safe, called by the cores; the destructor ends the threads after the runs in hand.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"
#include "worker/data/batch_plan.h"
#include "worker/data/shard_loader.h"

namespace ringmaster::worker {

// What a worker gives to reading: flags of ringworker, and no part of any job.
struct InputOptions {
  uint32_t threads = 1;
  // Of the rows that are held ahead; at least one batch, however large it is.
  uint64_t memory_bytes = uint64_t{1} << 30;
};

struct ReaderOptions {
  std::vector<uint32_t> shards;  // that this worker computes, ascending
  uint64_t start_step = 0;       // K: the first training step
  size_t ahead = 0;              // batches held at most; 0: two steps' worth
  InputOptions input;
  InputStage* stage = nullptr;  // of the loader's pixels; outlives the reader and its batches
};

class Reader {
 public:
  // A run of rows: what a thread does between two looks at what is oldest.
  static constexpr size_t kRunRows = 8;

  Reader(std::shared_ptr<const ShardLoader> loader, ReaderOptions options);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // The batch, once: asking again loads it again. DEADLINE_EXCEEDED when rows of it were still
  // being loaded elsewhere at `deadline`; CANCELLED after Stop(); else the error of the lowest row
  // that has one, or the stage's.
  [[nodiscard]] StatusOr<std::shared_ptr<const ShardBatch>> Get(
      const BatchId& id, std::chrono::steady_clock::time_point deadline);

  [[nodiscard]] std::span<const uint32_t> shards() const { return options_.shards; }
  // Batches that are whole and not yet asked for; at most options.ahead.
  [[nodiscard]] size_t held() const;
  // Of those and of what is loaded for them, and of what was passed over and is still in hand.
  [[nodiscard]] uint64_t held_bytes() const;
  // Since the last call: that threads, cores that helped among them, took for training samples.
  [[nodiscard]] double TakeSeconds();

  // Wakes every waiter with CANCELLED and ends the threads after the runs in hand. Idempotent.
  void Stop();

 private:
  struct Flight;  // a batch on its way
  using FlightPtr = std::shared_ptr<Flight>;
  // Rows [begin, end) of a flight.
  struct Run {
    FlightPtr flight;
    size_t begin = 0, end = 0;
  };

  void Serve(const std::string& name);
  // What there is to do for a thread: the first of these, nothing at the end.
  [[nodiscard]] bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WorkOnce(LoadScratch* scratch);
  [[nodiscard]] FlightPtr ToBring() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  [[nodiscard]] FlightPtr Plan() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  [[nodiscard]] bool MayPlan() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  [[nodiscard]] Run Claim(const FlightPtr& flight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Without the lock.
  void Bring(const FlightPtr& flight);
  void Open(const FlightPtr& flight);
  void Load(const Run& run, LoadScratch* scratch);

  // The flight of a batch that somebody asks for; a new one, `opens`, is for the caller to open.
  [[nodiscard]] FlightPtr Ask(const BatchId& id, bool* opens) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The trainer has come to the batch of `id`: whatever comes before that batch is forgotten, and
  // not loaded if it was not yet.
  void SkipTo(const BatchId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Somebody is done with a part of it.
  void Settle(const FlightPtr& flight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // It is not held ahead any more.
  void Release(Flight* flight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<const ShardLoader> loader_;
  const ReaderOptions options_;
  const size_t ahead_;

  mutable Mutex mu_;
  Condition work_;     // for threads: there may be something to do
  Condition changed_;  // for who asked: a batch is whole, or has rows to load
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  BatchPlan plan_ ABSL_GUARDED_BY(mu_);
  std::map<BatchId, FlightPtr> flights_ ABSL_GUARDED_BY(mu_);
  std::map<BatchId, FlightPtr> open_ ABSL_GUARDED_BY(mu_);  // those with rows that nobody has
  size_t held_ ABSL_GUARDED_BY(mu_) = 0;                    // flights that are held ahead
  uint64_t held_bytes_ ABSL_GUARDED_BY(mu_) = 0;            // theirs
  bool bringing_ ABSL_GUARDED_BY(mu_) = false;
  bool slot_free_ ABSL_GUARDED_BY(mu_) = true;  // of the stage, as far as is known
  double seconds_ ABSL_GUARDED_BY(mu_) = 0;

  std::vector<std::jthread> threads_;  // last: they use everything above
};

}  // namespace ringmaster::worker
