// The step loop's side of the ring: a thread of its own that reduces a step's buckets in index
// order as they become ready, while the cores still compute, and the scalars record last. Owned by
// a run of the step loop, one for each generation. Begin, SubmitRecord, Wait and what speaks of the
// round that ended: step thread; BucketReady and Leave: any thread; failed(): any thread,
// lock-free. It knows no model and no update.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/exact/record.h"
#include "common/mutex.h"
#include "common/status.h"
#include "worker/ring/all_reduce.h"
#include "worker/state/arena.h"
#include "worker/train/gradient_sum.h"
#include "worker/train/pulse_board.h"

namespace ringmaster::worker {

// The reduced sums of a step, in arena layout; the one that fits the reduction is allocated.
struct Totals {
  Arena<int64_t> integers;
  Arena<float> floats;
};

// What goes round the ring: a step's buckets and record, or one record about S(k): of the
// validation set, of the test set, or the farewell. That is an empty record: a member that has seen
// its end knows that every other has all results, so that it may leave without being missed.
enum class Round : uint8_t { kStep, kValidation, kTest, kFarewell };

// Whether this member wants the run to end at the boundary after the step. It goes round with the
// step's record, so that all members know the same and none begins a step that another one does
// not.
enum class EndsAtBoundary : uint8_t { kNo, kAsked };

// What a member adds to a step of predictions: the bits of its samples' rows as integers, 0 where
// another member has them, so that the sum is all of them. 256 a block.
struct RowBits {
  std::vector<exact::Block> blocks;
  std::vector<int64_t> bits;
};

struct ReducerOptions {
  ring::Link* link = nullptr;
  ring::Position position;
  ring::ReduceOptions reduce;
  uint64_t job = 0;  // as frames name it
  GenerationId generation;
};

class Reducer {
 public:
  // Everything pointed to outlives it.
  // `device`: has the sums, and gets the totals, where it is not nullptr; a ring of one member
  // moves nothing then.
  Reducer(const ReducerOptions& options, const exact::BlockLayout* layout, GradientSum* sum,
          Totals* totals, DeviceState* device, PulseBoard* pulse);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Starts a round of step `step` (all buckets, then the record) or of S(step) (the record alone).
  // The one before has ended.
  void Begin(Round round, uint64_t step);
  // Nothing more will be added to this bucket of the step.
  void BucketReady(uint32_t bucket);
  // This worker's own record, of the same shape on every member; the last thing that a reduction
  // waits for.
  // `rows` go behind it, in a step of predictions: likewise of the same blocks everywhere.
  void SubmitRecord(exact::Record own, EndsAtBoundary ends = EndsAtBoundary::kNo,
                    RowBits rows = {});
  // Waits for the end of the reduction: the ring's record. The error is the link's, or what Leave
  // gave.
  StatusOr<exact::Record> Wait();
  // Of the round that ended: the rows of all members, once.
  [[nodiscard]] RowBits TakeRows() { return std::move(rows_); }
  // Of the step whose record came round last: whether any member asked for its boundary.
  [[nodiscard]] bool ends_at_boundary() const {
    return ends_at_boundary_.load(std::memory_order_relaxed);
  }
  // Of the round that ended: how long the ring waited for the predecessor after the own record was
  // there.
  [[nodiscard]] double wait_seconds() { return ring_.waits().seconds(); }
  // Of the link, when that is what ended a round other than the farewell; else kOk.
  [[nodiscard]] absl::StatusCode link_error() const { return link_error_; }

  // This worker goes no further: ends the reduction in hand, and the link, so that neighbours do
  // not wait for it. The first reason stays. Returns `reason`.
  Status Leave(Status reason);
  // True once the reduction in hand failed: there is no use in computing on.
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_relaxed); }

 private:
  enum class Stage { kIdle, kReducing, kDone };
  void Loop();
  // Waits until `ready` holds; an error when the reduction was aborted first.
  template <typename Ready>
  Status WaitForOwn(Ready ready) ABSL_LOCKS_EXCLUDED(mu_);
  void Abort(Status reason);
  StatusOr<exact::Record> ReduceAll();
  Status ReduceBucket(uint32_t index);
  // Where there is a device: when it fails, this worker is what ends, and no peer is to blame.
  template <typename Work>
  Status OnDevice(Work work);
  StatusOr<exact::Record> ReduceRecord(uint32_t bucket);
  Status GatherRows(uint32_t bucket);
  Status ReduceStepRecord(uint32_t bucket, const exact::Record& own, EndsAtBoundary ends,
                          exact::Record* total);
  [[nodiscard]] ring::Context ContextOf(uint32_t bucket) const;

  const ReducerOptions options_;
  const exact::BlockLayout* const layout_;
  GradientSum* const sum_;
  Totals* const totals_;
  DeviceState* const device_;
  PulseBoard* const pulse_;

  // Ring thread, between Begin and the end of the reduction.
  ring::AllReduce ring_;
  Round round_ = Round::kStep;
  uint64_t step_ = 0;
  RowBits rows_;  // also of the step thread's, between two rounds

  absl::StatusCode link_error_ = absl::StatusCode::kOk;  // step thread

  std::atomic<bool> failed_{false};
  std::atomic<bool> ends_at_boundary_{false};

  Mutex mu_;
  Condition changed_;
  Stage stage_ ABSL_GUARDED_BY(mu_) = Stage::kIdle;
  std::vector<bool> ready_ ABSL_GUARDED_BY(mu_);  // by bucket
  std::optional<exact::Record> own_record_ ABSL_GUARDED_BY(mu_);
  EndsAtBoundary own_ends_ ABSL_GUARDED_BY(mu_) = EndsAtBoundary::kNo;  // goes with it
  RowBits own_rows_ ABSL_GUARDED_BY(mu_);                               // likewise
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  Status aborted_ ABSL_GUARDED_BY(mu_);
  StatusOr<exact::Record> result_ ABSL_GUARDED_BY(mu_);

  std::jthread thread_;  // last: it uses everything above
};

}  // namespace ringmaster::worker
