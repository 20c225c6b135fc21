// Which member computes which shards of a generation. Pure; thread-safe (free functions).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ringmaster::coordinator {

// A place in the ring, before it has shards.
struct Seat {
  uint32_t cores = 1;            // >= 1
  std::vector<uint32_t> folded;  // shards of the first step that it has finished
};

struct Assignment {
  std::vector<std::vector<uint32_t>> shards;  // of each seat, ascending
  uint32_t kept = 0;                          // finished before, and not computed again
};

// How many shards a seat gets is a function of cores alone (job::AssignShards). A seat whose folded
// shards are no more than that, and nobody's yet, keeps them all; any other seat keeps none, as a
// worker does. What is missing is dealt out in ring order, ascending: without folded shards
// everybody gets a contiguous range. 1 <= seats.size() <= shards.
[[nodiscard]] Assignment Assign(uint32_t shards, std::span<const Seat> seats);

}  // namespace ringmaster::coordinator
