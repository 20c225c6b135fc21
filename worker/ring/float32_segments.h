// Segments of plain float32, added in ring order: what the exact ones are compared with. Ring
// thread only.
//
// Payload: the elements of the blocks one after the other, little-endian, without padding.
#pragma once

#include <array>
#include <span>

#include "common/exact/block_layout.h"
#include "worker/ring/buffer_pool.h"
#include "worker/ring/segments.h"

namespace ringmaster::ring {

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
