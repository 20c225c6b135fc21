// How the gradients of a job lie in memory and how they are cut into blocks. A value, immutable
// after Create, thread-safe. It knows sizes only: no names, no network.
//
// All tensors lie in one arena in *arena order* (the order in which backward yields them, so that a
// bucket is a range). Each tensor starts at a multiple of 256 elements, so block b covers arena
// elements [256 b, 256 b + count(b)); padding between tensors belongs to nobody and stays zero.
// Parameters, optimizer slots, sums and reduced gradients all use this layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/exact/block.h"
#include "common/status.h"

namespace ringmaster::exact {

struct TensorRange {
  uint32_t tensor;     // canonical number
  uint64_t elements;   // of the tensor
  size_t first_block;  // arena offset = 256 * first_block
  size_t block_count;
  size_t offset() const { return first_block * kBlockElements; }
};

class BlockLayout {
 public:
  struct Tensor {
    uint32_t tensor;    // canonical number
    uint64_t elements;  // >= 1
  };
  // `arena_order`: every canonical number 0 .. size-1 exactly once, in arena order.
  [[nodiscard]] static StatusOr<BlockLayout> Create(std::span<const Tensor> arena_order);

  [[nodiscard]] std::span<const Block> blocks() const { return blocks_; }
  [[nodiscard]] size_t block_count() const { return blocks_.size(); }
  // Elements of the arena, padding included: 256 * block_count().
  [[nodiscard]] size_t arena_elements() const { return blocks_.size() * kBlockElements; }
  // Ranges in arena order.
  [[nodiscard]] std::span<const TensorRange> tensors() const { return tensors_; }
  // The range of a canonical tensor number.
  [[nodiscard]] const TensorRange& tensor(uint32_t canonical) const {
    return tensors_[position_[canonical]];
  }

 private:
  std::vector<Block> blocks_;
  std::vector<TensorRange> tensors_;
  std::vector<size_t> position_;  // canonical number -> index into tensors_
};

// Consecutive blocks that go round the ring together.
struct Bucket {
  size_t first_block;
  size_t block_count;
};

// Cuts the layout into buckets of at least `bucket_elements` elements (the last may be smaller) at
// tensor borders; a tensor is never split between buckets.
[[nodiscard]] std::vector<Bucket> CutBuckets(const BlockLayout& layout, size_t bucket_elements);

// In which of the layout's buckets each tensor lies, by canonical number.
[[nodiscard]] std::vector<uint32_t> BucketsOfTensors(const BlockLayout& layout,
                                                     std::span<const Bucket> buckets);

}  // namespace ringmaster::exact
