#include "worker/ring/schedule.h"

#include <algorithm>

#include "common/check.h"

namespace ringmaster::ring {
namespace {

// Step s of 2 (size - 1) + 1: the first only sends, the last only receives.
Action ActionOf(uint32_t step, uint32_t size) {
  if (step == 0) return Action::kStart;
  if (step < size - 1) return Action::kAdd;
  if (step == size - 1) return Action::kTotal;
  if (step < 2 * (size - 1)) return Action::kForward;
  return Action::kKeep;
}

}  // namespace

bool Receives(Action action) { return action != Action::kStart; }

bool Sends(Action action) { return action != Action::kKeep; }

BlockRange ChunkBlocks(size_t blocks, uint32_t size, uint32_t chunk) {
  const size_t each = blocks / size;
  const size_t longer = blocks % size;
  const auto first_of = [&](size_t c) { return c * each + std::min(c, longer); };
  return {first_of(chunk), first_of(chunk + size_t{1})};
}

std::vector<Turn> MakeSchedule(size_t blocks, Position position, size_t segment_blocks,
                               uint32_t window) {
  RING_CHECK(position.size >= 2 && position.rank < position.size, "a ring has two or more members");
  RING_CHECK(segment_blocks >= 1 && window >= 1, "segments and windows are not empty");
  const uint32_t size = position.size;
  const uint32_t last_step = 2 * (size - 1);
  const size_t longest = (blocks + size - 1) / size;
  const size_t segments = (longest + segment_blocks - 1) / segment_blocks;

  std::vector<Turn> turns;
  turns.reserve(segments * (last_step + 1));
  const auto add = [&](uint32_t step, size_t segment) {
    const uint32_t chunk = (position.rank + 2 * size - step) % size;
    const BlockRange range = ChunkBlocks(blocks, size, chunk);
    const size_t first = range.first + segment * segment_blocks;
    if (first >= range.last) return;
    turns.push_back({ActionOf(step, size), chunk, static_cast<uint32_t>(segment), first,
                     std::min(segment_blocks, range.last - first)});
  };
  for (size_t wave = 0; wave < segments; wave += window) {
    const size_t count = std::min<size_t>(window, segments - wave);
    for (size_t slot = 0; slot < count + 2 * last_step; ++slot) {
      for (uint32_t step = last_step + 1; step-- > 0;) {
        const size_t before = 2 * size_t{step};
        if (slot >= before && slot - before < count) add(step, wave + slot - before);
      }
    }
  }
  return turns;
}

}  // namespace ringmaster::ring
