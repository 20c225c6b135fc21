// The ring all-reduce of one bucket: reduce-scatter, then all-gather (Patarasuk and Yuan,
// "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009), on packed integers
// or on plain float32. Ring thread only, but for waits(). It knows no model: blocks and numbers are
// all it sees.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "common/exact/block_layout.h"
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
  size_t segment_elements = 1 << 18;                  // of one message; a multiple of 256
  std::chrono::milliseconds progress_limit{600'000};  // without any frame: DEADLINE_EXCEEDED
};

// One member of the ring of one generation. `link` must outlive it; nullptr when size is 1.
class AllReduce {
 public:
  AllReduce(Link* link, Position position, ReduceOptions options);
  // Bytes of the largest payload that any member sends.
  [[nodiscard]] static size_t LargestPayload(const ReduceOptions& options);

  // totals = the sum of every member's `own`, exact (mod 2^64). `blocks` has the elements of each
  // block (1 to 256); both spans hold 256 elements a block, padding is ignored and left alone.
  // `own` is never changed, so an aborted reduction can be repeated in another generation; `totals`
  // may be garbage after an error. FAILED_PRECONDITION: a frame that is not of `context`;
  // INVALID_ARGUMENT: a payload that does not fit its blocks; else the link's errors. Any error
  // ends the link, so that the neighbours learn of it at once.
  Status Exact(const Context& context, std::span<const exact::Block> blocks,
               std::span<const int64_t> own, std::span<int64_t> totals);

  // The same on float32, added in ring order: bits depend on the cluster.
  Status Float32(const Context& context, std::span<const exact::Block> blocks,
                 std::span<const float> own, std::span<float> totals);

  // Of every frame received so far. Any thread.
  [[nodiscard]] WaitMeter& waits() { return waits_; }
  // Buffers of payloads that the transport has not let go of yet. Any thread.
  [[nodiscard]] size_t unsent() const { return pool_.out(); }

 private:
  // Carries out every turn of the bucket.
  Status Run(const Context& context, size_t blocks, Segments* segments);
  Status Do(const Context& context, const Turn& turn, Segments* segments);
  Status Send(const FrameHeader& header, const Payload& payload);
  StatusOr<Frame> Receive();
  [[nodiscard]] std::chrono::steady_clock::time_point Deadline() const;

  Link* const link_;
  const Position position_;
  const ReduceOptions options_;
  BufferPool pool_;
  WaitMeter waits_;
};

}  // namespace ringmaster::ring
