// The step loop's side of the ring: a thread of its own that sends a step's buckets round together,
// each from when it is ready, while the cores still compute, and the scalars record beside the last
// of them. Owned by a run of the step loop, one for each generation. Begin, SubmitRecord,
// WaitForBuckets, Wait and what speaks of the round that ended: step thread; BucketReady and Leave:
// any thread; failed(): any thread, lock-free. It knows no model and no update.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/arena.h"
#include "common/exact/block_layout.h"
#include "common/exact/block_sums.h"
#include "common/exact/record.h"
#include "common/mutex.h"
#include "common/status.h"
#include "worker/backend/device_state.h"
#include "worker/ring/all_reduce.h"
#include "worker/train/gradient_sum.h"
#include "worker/train/pulse_board.h"

namespace ringmaster::worker {

// The reduced sums of a step, in arena layout, in a ring of several members; the one that fits the
// reduction is allocated.
struct Totals {
  exact::BlockSums integers;
  Arena<int64_t> of_device;  // its own sums, too, on their way from it and back
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
  // Whether no member ends a step before every member has all of its totals. Equal on all members.
  // It costs an integer that goes round behind the rest of the step. Without it a member that lost
  // its ring near the end of a step, and another one did not, has to fetch that one's state.
  bool ends_together = false;
};

class Reducer {
 public:
  // Everything pointed to outlives it.
  // `device`: has the sums, and gets the totals, where it is not nullptr. A ring of one member
  // moves nothing: its totals are its own sums.
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
  // Buckets of gradients whose totals are there and that were not given out before; waits for one.
  // None: the reduction has ended, and Wait says how. In a ring of several members.
  std::vector<uint32_t> WaitForBuckets();
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
  // What a member adds to a round besides gradients.
  struct Own {
    exact::Record record;
    EndsAtBoundary ends = EndsAtBoundary::kNo;
    RowBits rows;
  };
  // What became ready since the ring thread last looked.
  struct News {
    std::vector<uint32_t> buckets;
    std::optional<Own> own;
  };
  // What goes round as one bucket behind the gradients: integers of this member, and of all.
  struct Numbers {
    std::vector<exact::Block> blocks;
    std::vector<int64_t> own;
    std::vector<int64_t> totals;
  };

  void Loop();
  // `wait`: until there is some, whatever becomes of the link meanwhile. An error when the
  // reduction was aborted.
  StatusOr<News> TakeNews(bool wait) ABSL_LOCKS_EXCLUDED(mu_);
  void Abort(Status reason);
  StatusOr<exact::Record> ReduceAll();
  Status Add(News news);
  Status AddBucket(uint32_t index);
  Status AddOwn(Own own);
  Status AddNumbers(uint32_t index, Numbers* numbers);
  Status AddEnd();
  Status Finished(uint32_t index);
  // Where there is a device: when it fails, this worker is what ends, and no peer is to blame.
  template <typename Work>
  Status OnDevice(Work work);
  [[nodiscard]] ring::Context ContextOf() const;
  // The record of all members, and what came with it.
  exact::Record Unpack();
  // Of the round in hand: how many buckets of gradients it has.
  [[nodiscard]] size_t gradient_buckets() const {
    return round_ == Round::kStep ? sum_->buckets().size() : 0;
  }

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
  size_t unfinished_ = 0;                // buckets of the round, of all kinds
  std::optional<exact::Record> record_;  // own; what comes back has its shape
  Numbers record_numbers_, row_numbers_, end_numbers_;
  RowBits rows_;  // also of the step thread's, between two rounds

  absl::StatusCode link_error_ = absl::StatusCode::kOk;  // step thread

  std::atomic<bool> failed_{false};
  std::atomic<bool> ends_at_boundary_{false};

  Mutex mu_;
  Condition changed_;
  Stage stage_ ABSL_GUARDED_BY(mu_) = Stage::kIdle;
  News news_ ABSL_GUARDED_BY(mu_);
  std::vector<uint32_t> reduced_ ABSL_GUARDED_BY(mu_);  // buckets for WaitForBuckets
  bool buckets_wanted_ ABSL_GUARDED_BY(mu_) = false;    // somebody waits there
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  Status aborted_ ABSL_GUARDED_BY(mu_);
  StatusOr<exact::Record> result_ ABSL_GUARDED_BY(mu_);

  std::jthread thread_;  // last: it uses everything above
};

}  // namespace ringmaster::worker
