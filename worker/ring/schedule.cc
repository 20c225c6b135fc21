#include "worker/ring/schedule.h"

#include <algorithm>

#include "common/check.h"

namespace ringmaster::ring {

Phase SentPhase(Action action) {
  return action == Action::kStart || action == Action::kAdd ? Phase::kReduceScatter
                                                            : Phase::kAllGather;
}

BlockRange ChunkBlocks(size_t blocks, uint32_t size, uint32_t chunk) {
  const size_t each = blocks / size;
  const size_t longer = blocks % size;
  const auto first_of = [&](size_t c) { return c * each + std::min(c, longer); };
  return {first_of(chunk), first_of(chunk + size_t{1})};
}

Schedule::Schedule(size_t blocks, Position position, size_t segment_blocks)
    : blocks_(blocks),
      position_(position),
      segment_blocks_(segment_blocks),
      exchange_(position.size == 2 && blocks <= std::min(segment_blocks, kExchangeBlocks)) {
  RING_CHECK(position.size >= 2 && position.rank < position.size, "a ring has two or more members");
  RING_CHECK(segment_blocks >= 1, "segments are not empty");
  most_segments_ = SegmentsOf(0);
  size_t all = 0;
  for (uint32_t chunk = 0; chunk < position.size; ++chunk) all += SegmentsOf(chunk);
  // Of every chunk a partial sum but of the own, and a total but of the one that becomes it here.
  // In an exchange the other one's alone.
  receives_ = exchange_ ? all - starts()
                        : 2 * all - starts() - SegmentsOf((position.rank + 1) % position.size);
}

StatusOr<Turn> Schedule::Received(Phase phase, uint32_t chunk, uint32_t segment) const {
  const uint32_t size = position_.size;
  if (chunk >= size || segment >= SegmentsOf(chunk)) {
    return FailedPrecondition(
        "frame chunk {} segment {}: expected one of {} chunks of a bucket of {} blocks, with {} "
        "blocks a segment",
        chunk, segment, size, blocks_, segment_blocks_);
  }
  // At which step this member has the chunk in the reduce-scatter: 0 to size - 1.
  const uint32_t step = (position_.rank + size - chunk) % size;
  if (phase == Phase::kReduceScatter) {
    if (step == 0) {
      return FailedPrecondition(
          "frame phase: expected none of the reduce-scatter with chunk {}, which starts here",
          chunk);
    }
    if (exchange_) return MakeTurn(Action::kJoin, chunk, segment);
    return MakeTurn(step == size - 1 ? Action::kTotal : Action::kAdd, chunk, segment);
  }
  if (exchange_) {
    return FailedPrecondition(
        "frame phase: expected none of the all-gather of {} blocks, which two members exchange",
        blocks_);
  }
  if (step == size - 1) {
    return FailedPrecondition(
        "frame phase: expected none of the all-gather with chunk {}, whose total is made here",
        chunk);
  }
  return MakeTurn(step == size - 2 ? Action::kKeep : Action::kForward, chunk, segment);
}

size_t Schedule::IndexOf(const Turn& turn) const {
  const bool gather = turn.action == Action::kForward || turn.action == Action::kKeep;
  return ((gather ? position_.size : 0) + size_t{turn.chunk}) * most_segments_ + turn.segment;
}

BlockRange Schedule::RangeOf(uint32_t chunk) const {
  return exchange_ ? BlockRange{0, blocks_} : ChunkBlocks(blocks_, position_.size, chunk);
}

uint32_t Schedule::SegmentsOf(uint32_t chunk) const {
  const BlockRange range = RangeOf(chunk);
  return static_cast<uint32_t>((range.last - range.first + segment_blocks_ - 1) / segment_blocks_);
}

Turn Schedule::MakeTurn(Action action, uint32_t chunk, uint32_t segment) const {
  const BlockRange range = RangeOf(chunk);
  const size_t first = range.first + segment * segment_blocks_;
  return {action, chunk, segment, first, std::min(segment_blocks_, range.last - first)};
}

}  // namespace ringmaster::ring
