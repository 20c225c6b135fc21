// The ring all-reduce of one bucket: reduce-scatter, then all-gather (Patarasuk and Yuan,
// "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009), on packed integers
// or on plain float32. Ring thread only. It knows no model: blocks and numbers are all it sees.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "common/exact/block_layout.h"
#include "common/status.h"
#include "worker/ring/link.h"

namespace ringmaster::ring {

// Where this worker stands in the ring of a generation.
struct Position {
  uint32_t rank = 0;
  uint32_t size = 1;
};

// What makes a reduction current; stands on each of its frames.
struct Context {
  uint64_t job = 0;
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
  AllReduce(Link* link, Position position, ReduceOptions options)
      : link_(link), position_(position), options_(options) {}

  // totals = the sum of every member's `own`, exact. `block_counts` has the elements of each block
  // (1 to 256); both spans hold 256 elements a block, padding is ignored. `own` is never changed,
  // so an aborted reduction can be repeated in another generation; `totals` may be garbage after an
  // error. FAILED_PRECONDITION: a frame that is not of `context`.
  Status Exact(const Context& context, std::span<const exact::Block> blocks,
               std::span<const int64_t> own, std::span<int64_t> totals);

  // The same on float32, added in ring order: bits depend on the cluster.
  Status Float32(const Context& context, std::span<const exact::Block> blocks,
                 std::span<const float> own, std::span<float> totals);

 private:
  Link* const link_;
  const Position position_;
  const ReduceOptions options_;
};

}  // namespace ringmaster::ring
