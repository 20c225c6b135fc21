// The ring all-reduce: reduce-scatter, then all-gather (Patarasuk and Yuan, "Bandwidth optimal
// all-reduce algorithms for clusters of workstations", 2009), on packed integers or on plain
// float32. Buckets of one round go round together: each frame is dealt with when it comes, whatever
// its bucket. Ring thread only, but for Nudge and waits(). It knows no model: blocks and numbers
// are all it sees.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/exact/kernels.h"
#include "common/status.h"
#include "worker/ring/link.h"
#include "worker/ring/payload.h"
#include "worker/ring/schedule.h"
#include "worker/ring/segments.h"
#include "worker/ring/wait_meter.h"

namespace ringmaster::ring {

// What makes a reduction current; stands on each of its frames.
struct Context {
  uint64_t job = 0;  // JobHash(job id)
  GenerationId generation;
  uint64_t step = 0;
  Purpose purpose = Purpose::kStep;
  uint32_t bucket = 0;
};

struct ReduceOptions {
  static constexpr size_t kSegmentElements = 1 << 17;
  size_t segment_elements = kSegmentElements;             // of one message; a multiple of 256
  std::chrono::milliseconds progress_limit{600'000};      // without any frame: DEADLINE_EXCEEDED
  const exact::Kernels* kernels = &exact::BestKernels();  // members may have different ones
};

// One member of the ring of one generation. `link` must outlive it; nullptr when size is 1.
//
// A round: Begin; each bucket added once, in any order, when this member's contribution is there;
// Work until all of them are finished. Every member adds the same buckets, with the same blocks.
class AllReduce {
 public:
  AllReduce(Link* link, Position position, ReduceOptions options);
  // Bytes of the largest payload that any member sends.
  [[nodiscard]] static size_t LargestPayload(const ReduceOptions& options);

  // Starts a round; the one before is finished, or failed. `context.bucket` is of no account.
  void Begin(const Context& context);

  // totals = the sum of every member's `own`, exact (mod 2^64). `blocks` has the elements of each
  // block (1 to 256); sums hold 256 elements a block, padding is ignored. All outlive the bucket.
  // `own` is never changed, so an aborted reduction can be repeated in another generation; `totals`
  // may be garbage after an error. In a ring of one it is finished at once. Errors as of Work.
  Status AddExact(uint32_t bucket, std::span<const exact::Block> blocks, const OwnSums& own,
                  const TotalSums& totals);
  // The same on float32, added in ring order: bits depend on the cluster.
  Status AddFloat32(uint32_t bucket, std::span<const exact::Block> blocks,
                    std::span<const float> own, std::span<float> totals);

  // Sends and receives until every bucket that was added is finished; with kNews it also returns
  // after a Nudge, when there is nothing to do but wait, with kFinished after any bucket.
  // FAILED_PRECONDITION: a frame that is not of this round; INVALID_ARGUMENT: a payload that does
  // not fit its blocks; else the link's errors. Any error ends the link, so that the neighbours
  // learn of it at once. In a ring of one there is nothing to do.
  enum class Until : uint8_t { kIdle, kNews, kFinished };
  Status Work(Until until);
  // As of Link: all of this member's part of the round is added, so that it waits for others. Until
  // the next round.
  void SetUrgent(bool urgent) {
    if (link_ != nullptr) link_->SetUrgent(urgent);
  }
  // Whether every bucket that was added is finished.
  [[nodiscard]] bool idle() const { return unfinished_ == 0; }
  // The buckets that were finished since the last call.
  [[nodiscard]] std::vector<uint32_t> TakeFinished() { return std::exchange(finished_, {}); }
  // Ends a Work(kNews) that goes on, or the next one. Any thread.
  void Nudge() {
    if (link_ != nullptr) link_->Nudge();
  }

  // A round of one bucket, context.bucket.
  Status Exact(const Context& context, std::span<const exact::Block> blocks,
               std::span<const int64_t> own, std::span<int64_t> totals);
  Status Float32(const Context& context, std::span<const exact::Block> blocks,
                 std::span<const float> own, std::span<float> totals);

  // Of every frame received so far. Any thread.
  [[nodiscard]] WaitMeter& waits() { return waits_; }
  // Buffers of payloads that the transport has not let go of yet. Any thread.
  [[nodiscard]] size_t unsent() const { return pool_.out(); }

 private:
  // One of the round's, from its first frame or from when it was added.
  struct Bucket {
    std::unique_ptr<Segments> segments;  // nullptr: not added yet, or finished
    std::optional<Schedule> schedule;    // once it was added
    uint32_t started = 0;                // own segments
    uint32_t returned = 0;               // of them
    size_t left = 0;                     // frames that come yet
    std::vector<bool> seen;              // by Schedule::IndexOf
    std::vector<Frame> early;            // came before it was added
  };

  Status Add(uint32_t bucket, size_t blocks, std::unique_ptr<Segments> segments);
  Status Loop(Until until);
  // Starts an own segment where there is one and it may go; else false.
  StatusOr<bool> StartOne();
  // The bucket's next own segment.
  Status Start(uint32_t index);
  Status Deal(Frame frame);
  Status Take(uint32_t index, Bucket* bucket, const Frame& frame);
  Status Do(uint32_t index, const Turn& turn, const Frame& frame, Segments* segments);
  Status Send(uint32_t bucket, const Turn& turn, const Payload& payload);
  // A turn of `bucket` is over: hits the failpoints of a step.
  void Done(uint32_t bucket, Action action);
  // The next arrival; a wait for it counts as one for the predecessor.
  StatusOr<Arrival> Await();
  [[nodiscard]] FrameHeader HeaderOf(uint32_t bucket) const;
  [[nodiscard]] std::chrono::steady_clock::time_point Deadline() const;

  Link* const link_;
  const Position position_;
  const ReduceOptions options_;
  BufferPool pool_;
  WaitMeter waits_;

  // Of the round.
  Context round_;
  std::map<uint32_t, Bucket> buckets_;
  std::deque<uint32_t> to_start_;  // those with own segments that were not started, in order added
  size_t unfinished_ = 0;          // of those that were added
  size_t early_ = 0;               // frames that wait for their bucket
  uint32_t segments_out_ = 0;      // own ones that were started and have not come back
  uint32_t buckets_out_ = 0;       // those with such segments
  std::vector<uint32_t> finished_;
  bool at_reduce_scatter_ = false, at_all_gather_ = false;  // failpoints still to hit
};

}  // namespace ringmaster::ring
