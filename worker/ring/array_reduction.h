// One array of float32 as a step has its gradients: buckets of 1 Mi elements in one round of the
// ring, each added while those before it are under way. For measurements, which have no model. Ring
// thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/arena.h"
#include "common/exact/block_layout.h"
#include "common/exact/block_sums.h"
#include "common/status.h"
#include "worker/ring/all_reduce.h"

namespace ringmaster::ring {

// kExact: from float32 to float32, quantizing and all. kIntegers: the ring inside of it alone.
// kFloat32: plain floats, added in ring order.
enum class ArraySums : uint8_t { kExact, kIntegers, kFloat32 };

class ArrayReduction {
 public:
  // `members` add up, each one array of the same size. Takes 24 bytes an element.
  ArrayReduction(std::span<const float> own, uint32_t members);

  // Of each block, as exact::QuantizeAdd has it. Before the first reduction of integers.
  void UseUnits(std::vector<int> unit_exponents);

  // Errors are AllReduce's. kIntegers adds up those that UseUnits made.
  Status Reduce(AllReduce* reduce, const Context& context, ArraySums sums);

  [[nodiscard]] std::span<const exact::Block> blocks() const { return blocks_; }
  // Of the last reduction, 256 a block: what it ended with.
  [[nodiscard]] std::span<const float> reduced() const { return reduced_.span(); }
  [[nodiscard]] const exact::BlockSums& totals() const { return totals_; }

 private:
  // The blocks of a bucket.
  struct Part {
    uint32_t bucket;
    size_t first, count;
  };

  [[nodiscard]] Part PartOf(uint32_t bucket) const;
  void Quantize(size_t first, size_t count);
  Status Add(AllReduce* reduce, const Part& part, ArraySums sums);
  void Finish(const Part& part);

  const uint32_t members_;
  std::vector<exact::Block> blocks_;
  Arena<float> own_, reduced_;
  exact::BlockSums integers_, totals_;
  std::vector<int> unit_exponents_;
};

}  // namespace ringmaster::ring
