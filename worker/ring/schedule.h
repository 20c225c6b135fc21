// Which parts of a bucket a member sends and receives: one all-reduce, computed from sizes alone,
// so that every member knows it without a message. It says what is to be done with each frame, not
// in which order frames come. Immutable values, thread-safe.
//
// A bucket's blocks are cut into one chunk for each member and chunks into segments, the messages.
// The chunk that a member holds at step s is (rank - s) mod size: it starts with its own number,
// and takes over the next lower one from its predecessor at each step. docs/ring.md draws it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/status.h"
#include "worker/ring/frame.h"

namespace ringmaster::ring {

// Where a worker stands in the ring of a generation.
struct Position {
  uint32_t rank = 0;
  uint32_t size = 1;
};

// What a member does with one segment of one chunk.
enum class Action : uint8_t {
  kStart,    // send own contribution (reduce-scatter)
  kAdd,      // receive a partial sum, add own, send it on (reduce-scatter)
  kTotal,    // receive the last partial sum, add own: the total; keep it, and send it (all-gather)
  kForward,  // receive a total, keep it, send it on unchanged (all-gather)
  kKeep,     // receive a total, keep it (all-gather)
  kJoin,     // receive all of the other member's, add own: the total; keep it (an exchange)
};

// In which phase a member sends the segment of such a turn; of kKeep and kJoin, which send nothing,
// the all-gather.
[[nodiscard]] Phase SentPhase(Action action);

struct Turn {
  Action action;
  uint32_t chunk;
  uint32_t segment;    // inside the chunk
  size_t first_block;  // inside the bucket
  size_t block_count;  // at least 1: empty parts have no turn and no frame
  bool operator==(const Turn&) const = default;
};

// Blocks [first, last) of chunk `chunk`: whole blocks, the first chunks one block longer where they
// cannot be equal.
struct BlockRange {
  size_t first = 0;
  size_t last = 0;
  bool operator==(const BlockRange&) const = default;
};
[[nodiscard]] BlockRange ChunkBlocks(size_t blocks, uint32_t size, uint32_t chunk);

// Blocks of a bucket that two members exchange whole, where they fit into one message: each adds up
// all of it, after one hop instead of two. No more bytes on an edge than otherwise.
inline constexpr size_t kExchangeBlocks = 64;

// The turns of one member for a bucket of `blocks` blocks with at most `segment_blocks` (at least
// 1) in a message, in a ring of two or more. In an exchange each member's chunk is all of it.
class Schedule {
 public:
  Schedule(size_t blocks, Position position, size_t segment_blocks);

  // Of the own chunk: what this member starts, segment by segment; each comes back as a total when
  // all others have added theirs.
  [[nodiscard]] uint32_t starts() const { return SegmentsOf(position_.rank); }
  [[nodiscard]] Turn Start(uint32_t segment) const {
    return MakeTurn(Action::kStart, position_.rank, segment);
  }

  // Frames that come from the predecessor.
  [[nodiscard]] size_t receives() const { return receives_; }
  // What to do with a frame of this bucket. FAILED_PRECONDITION: this member is sent none of that
  // phase, chunk and segment.
  [[nodiscard]] StatusOr<Turn> Received(Phase phase, uint32_t chunk, uint32_t segment) const;
  // Below 2 * size * longest chunk's segments, another one for each turn that receives.
  [[nodiscard]] size_t IndexOf(const Turn& turn) const;
  [[nodiscard]] size_t indices() const { return 2 * size_t{position_.size} * most_segments_; }

 private:
  [[nodiscard]] BlockRange RangeOf(uint32_t chunk) const;
  [[nodiscard]] uint32_t SegmentsOf(uint32_t chunk) const;
  [[nodiscard]] Turn MakeTurn(Action action, uint32_t chunk, uint32_t segment) const;

  size_t blocks_;
  Position position_;
  size_t segment_blocks_;
  bool exchange_;
  size_t most_segments_;
  size_t receives_;
};

}  // namespace ringmaster::ring
