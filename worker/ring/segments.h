// How the numbers of one bucket become payloads and payloads become sums: the part of an all-reduce
// that depends on the kind of number. Ring thread only. It knows no network and no order.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/exact/block_sums.h"
#include "common/exact/kernels.h"
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

// The integers that a member adds to a bucket: of a BlockSums, from a block on, or int64, 256 a
// block. A value; what it shows outlives it.
class OwnSums {
 public:
  OwnSums(const exact::BlockSums* sums, size_t first_block) : sums_(sums), first_(first_block) {}
  // NOLINTNEXTLINE(google-explicit-constructor): is one
  OwnSums(std::span<const int64_t> integers) : integers_(integers) {}

  // Whether there are so many blocks.
  [[nodiscard]] bool Hold(size_t blocks) const;
  // The block's elements where they are int32; else nullptr.
  [[nodiscard]] const int32_t* narrow(size_t block) const {
    return sums_ == nullptr ? nullptr : sums_->narrow(first_ + block);
  }
  // Where they are: the Width of the first `count`.
  [[nodiscard]] int NarrowWidth(size_t block, size_t count) const {
    return sums_->NarrowWidth(first_ + block, count);
  }
  // The first `count` elements, where they lie or copied to `side`.
  [[nodiscard]] std::span<const int64_t> Read(size_t block, size_t count, int64_t* side) const;

 private:
  const exact::BlockSums* sums_ = nullptr;
  size_t first_ = 0;
  std::span<const int64_t> integers_;
};

// Where the totals of a bucket go; likewise.
class TotalSums {
 public:
  TotalSums(exact::BlockSums* sums, size_t first_block) : sums_(sums), first_(first_block) {}
  // NOLINTNEXTLINE(google-explicit-constructor): is one
  TotalSums(std::span<int64_t> integers) : integers_(integers) {}

  [[nodiscard]] bool Hold(size_t blocks) const;
  // Where to write elements of at most 31 bits as int32; nullptr where only int64 may be.
  [[nodiscard]] int32_t* MakeNarrow(size_t block) const {
    return sums_ == nullptr ? nullptr : sums_->MakeNarrow(first_ + block);
  }
  void Write(size_t block, std::span<const int64_t> elements) const;

 private:
  exact::BlockSums* sums_ = nullptr;
  size_t first_ = 0;
  std::span<int64_t> integers_;
};

// Segments of integers, packed without loss (common/exact/codec.h). Ring thread only.
//
// Payload: one byte for each block with its width in bits, padded with zeros to a multiple of 64
// bytes, then the packed blocks one after the other, each a multiple of 64 bytes.
class ExactSegments : public Segments {
 public:
  // Sums as of AllReduce::AddExact; all outlive it. Buffers of `pool` hold PayloadLimit(blocks of a
  // segment).
  ExactSegments(std::span<const exact::Block> blocks, OwnSums own, TotalSums totals,
                const exact::Kernels& kernels, BufferPool* pool)
      : blocks_(blocks), own_(own), totals_(totals), kernels_(kernels), pool_(pool) {}

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
  // Appends own + what was packed, and keeps it.
  void FoldBlock(size_t block, const uint8_t* packed, int width, Totals totals, Writer* writer);

  [[nodiscard]] std::span<const exact::Block> blocks(const Turn& turn) const {
    return blocks_.subspan(turn.first_block, turn.block_count);
  }

  const std::span<const exact::Block> blocks_;
  const OwnSums own_;
  const TotalSums totals_;
  const exact::Kernels& kernels_;
  BufferPool* const pool_;
  std::vector<uint8_t> widths_;  // of the received segment in work
  // A received block that lies in pieces; sums of a block, or what is added to them.
  alignas(64) std::array<uint8_t, exact::kBlockElements * sizeof(int64_t)> side_;
  alignas(64) std::array<int32_t, exact::kBlockElements> narrow_;
  alignas(64) std::array<int64_t, exact::kBlockElements> wide_, addends_;
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

  Status CheckBytes(const Turn& turn, const Payload& received) const;
  StatusOr<Payload> Fold(const Turn& turn, const Payload& received, Totals totals);

  const std::span<const exact::Block> blocks_;
  const std::span<const float> own_;
  const std::span<float> totals_;
  BufferPool* const pool_;
};

}  // namespace ringmaster::ring
