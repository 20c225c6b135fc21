// The unit of each block: the power of two that one integer step stands for (docs/glossary.md).
// Thread-compatible. Part of the job's state: at the same step every worker holds the same
// exponents.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/exact/arithmetic.h"
#include "common/exact/block_layout.h"
#include "common/exact/digest.h"

namespace ringmaster::exact {

// Of a block's values, as float32 bits, which order like magnitudes; from kInfinityBits on: one of
// them is not finite.
[[nodiscard]] uint32_t LargestMagnitude(std::span<const float> block);

class Units {
 public:
  // All blocks at E = B - 40, as at step 0.
  Units(const BlockLayout* layout, int precision_bits);

  // log2 of the unit of block b: E(b) - B.
  [[nodiscard]] int unit_exponent(size_t block) const {
    return exponents_[block] - precision_bits_;
  }
  [[nodiscard]] std::span<const int16_t> exponents() const { return exponents_; }
  [[nodiscard]] int precision_bits() const { return precision_bits_; }

  // E of the next step from the reduced gradients of this one (arena layout, before clipping):
  // floor(log2 |largest|) of each block, not lower than the tensor's own minus 12, then clamped.
  void Advance(std::span<const float> reduced);
  // Its two halves: what one block's own reduced gradients say, on any thread; then, once all
  // blocks' are known, what depends on the whole tensor.
  [[nodiscard]] static int16_t OwnExponent(std::span<const float> reduced);
  void Settle(std::span<const int16_t> own);
  // After a skipped step: as at step 0.
  void Reset();
  // Of the digest of a state: the exponents are words, those of 256 blocks of a tensor a block.
  [[nodiscard]] BlockSum Hash() const;
  // From a checkpoint or a peer; the sizes must be equal.
  [[nodiscard]] Status Restore(std::span<const int16_t> exponents);

 private:
  const BlockLayout* layout_;
  int precision_bits_;
  std::vector<int16_t> exponents_;
};

}  // namespace ringmaster::exact
