// How the numbers of one bucket become payloads and payloads become sums: the part of an all-reduce
// that depends on the kind of number. Ring thread only. It knows no network and no order.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/status.h"
#include "worker/ring/payload.h"
#include "worker/ring/schedule.h"

namespace ringmaster::ring {

// `turn` says which blocks. INVALID_ARGUMENT: a received payload is not of the form that these
// blocks have; it is tested before anything is read from it.
class Segments {
 public:
  virtual ~Segments() = default;
  // The own contribution.
  virtual Payload Pack(const Turn& turn) = 0;
  // A received partial sum plus the own contribution.
  virtual StatusOr<Payload> Add(const Turn& turn, const Payload& received) = 0;
  // The same where the result is the total, which is kept too.
  virtual StatusOr<Payload> Total(const Turn& turn, const Payload& received) = 0;
  // Keeps a received total.
  virtual Status Keep(const Turn& turn, const Payload& received) = 0;
};

// Segments of integers, packed without loss (common/exact/codec.h). Ring thread only.
//
// Payload: one byte for each block with its width in bits, padded with zeros to a multiple of 64
// bytes, then the packed blocks one after the other, each a multiple of 64 bytes.
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

// Segments of plain float32, added in ring order: what the exact ones are compared with. Ring
// thread only.
//
// Payload: the elements of the blocks one after the other, little-endian, without padding.
class Float32Segments : public Segments {
 public:
  // Spans as of AllReduce::Float32; all outlive it. Buffers of `pool` hold 1 KiB a block.
  Float32Segments(std::span<const exact::Block> blocks, std::span<const float> own,
                  std::span<float> totals, BufferPool* pool)
      : blocks_(blocks), own_(own), totals_(totals), pool_(pool) {}

  Payload Pack(const Turn& turn) override;
  StatusOr<Payload> Add(const Turn& turn, const Payload& received) override;
  StatusOr<Payload> Total(const Turn& turn, const Payload& received) override;
  Status Keep(const Turn& turn, const Payload& received) override;

 private:
  class Writer;
  enum class Totals { kDrop, kKeep };
  using BlockOfFloats = std::array<float, exact::kBlockElements>;

  Status CheckBytes(const Turn& turn, const Payload& received) const;
  StatusOr<Payload> Fold(const Turn& turn, const Payload& received, Totals totals);

  const std::span<const exact::Block> blocks_;
  const std::span<const float> own_;
  const std::span<float> totals_;
  BufferPool* const pool_;
};

}  // namespace ringmaster::ring
