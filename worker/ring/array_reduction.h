// One array of float32 as a step has its gradients: buckets in one round of the ring, each added
// while those before it are under way. For measurements, which have no model. Ring thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/arena.h"
#include "common/exact/block_layout.h"
#include "common/exact/block_sums.h"
#include "common/status.h"
#include "worker/ring/all_reduce.h"

namespace ringmaster::ring {

// kExact: from float32 to float32, quantizing and all; of integers there are only those under way.
// kIntegers: the ring inside of it alone. kFloat32: plain floats, added in ring order.
enum class ArraySums : uint8_t { kExact, kIntegers, kFloat32 };

class ArrayReduction {
 public:
  // `members` add up, each one array of the same size. Takes 8 bytes an element and at most
  // 48 MiB, and with kIntegers 8 bytes more.
  ArrayReduction(std::span<const float> own, uint32_t members);

  // Of each block, as exact::QuantizeAdd has it. Before the first reduction of integers.
  void UseUnits(std::vector<int> unit_exponents);

  // Errors are AllReduce's. kIntegers adds up those that UseUnits made.
  Status Reduce(AllReduce* reduce, const Context& context, ArraySums sums);

  [[nodiscard]] std::span<const exact::Block> blocks() const { return blocks_; }
  // Of the last reduction, 256 a block: what it ended with.
  [[nodiscard]] std::span<const float> reduced() const { return reduced_.span(); }

 private:
  // Own integers and totals.
  struct Integers {
    explicit Integers(size_t blocks) : own(blocks), totals(blocks) {}
    exact::BlockSums own, totals;
  };
  // The blocks of a bucket, and from where on its integers are.
  struct Part {
    size_t first, count, at;
  };

  void Quantize(const Part& part, exact::BlockSums* integers) const;
  Status Add(AllReduce* reduce, uint32_t bucket, const Part& part, ArraySums sums);
  void Finish(const Part& part);

  const uint32_t members_;
  std::vector<exact::Block> blocks_;
  Arena<float> own_, reduced_;
  std::vector<int> unit_exponents_;
  std::optional<Integers> window_;  // of kExact: of some buckets, again and again
  std::optional<Integers> whole_;   // of kIntegers
};

}  // namespace ringmaster::ring
