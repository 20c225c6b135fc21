// Segments of integers, packed without loss (common/exact/codec.h). Ring thread only.
//
// Payload: one byte for each block with its width in bits, padded with zeros to a multiple of 64
// bytes, then the packed blocks one after the other, each a multiple of 64 bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/exact/block_layout.h"
#include "worker/ring/buffer_pool.h"
#include "worker/ring/segments.h"

namespace ringmaster::ring {

class ExactSegments : public Segments {
 public:
  // Spans as of AllReduce::Exact; all outlive it. Buffers of `pool` hold PayloadLimit(blocks of a
  // segment).
  ExactSegments(std::span<const exact::Block> blocks, std::span<const int64_t> own,
                std::span<int64_t> totals, BufferPool* pool)
      : blocks_(blocks), own_(own), totals_(totals), pool_(pool) {}

  // Bytes of the largest payload that `blocks` blocks can have.
  [[nodiscard]] static size_t PayloadLimit(size_t blocks);

  Payload Pack(const Turn& turn) override;
  StatusOr<Payload> Add(const Turn& turn, const Payload& received) override;
  StatusOr<Payload> Total(const Turn& turn, const Payload& received) override;
  Status Keep(const Turn& turn, const Payload& received) override;

 private:
  class Writer;
  enum class Totals { kDrop, kKeep };

  // Reads and tests the widths of a payload; `reader` is then at the first packed block.
  Status ReadWidths(const Turn& turn, PayloadReader* reader);
  StatusOr<Payload> Fold(const Turn& turn, const Payload& received, Totals totals);

  [[nodiscard]] std::span<const exact::Block> blocks(const Turn& turn) const {
    return blocks_.subspan(turn.first_block, turn.block_count);
  }
  [[nodiscard]] std::span<const int64_t> own(size_t block) const {
    return own_.subspan(block * exact::kBlockElements, blocks_[block].count);
  }

  const std::span<const exact::Block> blocks_;
  const std::span<const int64_t> own_;
  const std::span<int64_t> totals_;
  BufferPool* const pool_;
  std::vector<uint8_t> widths_;  // of the received segment in work
  alignas(64) std::array<uint8_t, exact::kBlockElements * sizeof(int64_t)> side_;
};

}  // namespace ringmaster::ring
