// Who sends which part of a bucket when: the order of one all-reduce, computed from sizes alone, so
// that every member knows it without a message. Immutable values, thread-safe.
//
// A bucket's blocks are cut into one chunk for each member and chunks into segments, the messages.
// The chunk that a member holds at step s is (rank - s) mod size: it starts with its own number,
// and takes over the next lower one from its predecessor at each step. docs/ring.md draws it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

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
};

struct Turn {
  Action action;
  uint32_t chunk;
  uint32_t segment;    // inside the chunk
  size_t first_block;  // inside the bucket
  size_t block_count;  // at least 1: empty parts have no turn and no frame
};

[[nodiscard]] bool Receives(Action action);
[[nodiscard]] bool Sends(Action action);

// Blocks [first, last) of chunk `chunk`: whole blocks, the first chunks one block longer where they
// cannot be equal.
struct BlockRange {
  size_t first = 0;
  size_t last = 0;
  bool operator==(const BlockRange&) const = default;
};
[[nodiscard]] BlockRange ChunkBlocks(size_t blocks, uint32_t size, uint32_t chunk);

// The turns of member `position` for a bucket of `blocks` blocks with at most `segment_blocks` (at
// least 1) in a message. Skewed: step s of segment j is due in slot j + 2 s, later steps first
// inside a slot, so that a sum is sent on while it is in cache and few buffers are under way. Of
// every edge the sender's order of sends is the receiver's order of receives. Segments are taken in
// waves of at most `window`, which bounds the frames that are under way at once.
[[nodiscard]] std::vector<Turn> MakeSchedule(size_t blocks, Position position,
                                             size_t segment_blocks, uint32_t window);

}  // namespace ringmaster::ring
