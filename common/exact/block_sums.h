// Sums of blocks of integers that mean int64, in 4 bytes an element for as long as they fit: each
// block is zero, which is written nowhere; narrow, int32 elements of at most 31 bits; or wide, with
// the upper halves in another place, which takes no memory until it is needed. A guard at every
// addition keeps a narrow block from wrapping. Several threads may work on different blocks; else
// thread-compatible.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/arena.h"
#include "common/exact/block.h"
#include "common/exact/kernels.h"
#include "common/exact/quantize.h"

namespace ringmaster::exact {

class BlockSums {
 public:
  BlockSums() = default;
  // All zero, 256 elements a block.
  explicit BlockSums(size_t blocks, const Kernels& kernels = BestKernels());

  [[nodiscard]] size_t blocks() const { return forms_.size(); }

  // The elements of a narrow block, at a multiple of 64; nullptr where it is wide.
  [[nodiscard]] const int32_t* narrow(size_t block) const {
    return forms_[block] == kZero ? kZeros : forms_[block] == kWide ? nullptr : low(block);
  }
  // Of a narrow block: the Width of its first `count` elements, which QuantizeAdd was given.
  [[nodiscard]] int NarrowWidth(size_t block, size_t count) const;
  // The first out.size() elements.
  void Read(size_t block, std::span<int64_t> out) const;

  // The block has these elements, and any others behind them.
  void Write(size_t block, std::span<const int64_t> elements);
  // Where to write elements of at most 31 bits: the block is narrow from now on.
  [[nodiscard]] int32_t* MakeNarrow(size_t block) {
    forms_[block] = kUnknown;
    return low(block);
  }

  // As exact::QuantizeAdd, to the first gradient.size() elements.
  [[nodiscard]] FlagKind QuantizeAdd(size_t block, std::span<const float> gradient,
                                     int unit_exponent, float gradient_scale, uint32_t shards);
  // As exact::Dequantize, of the first out.size() elements.
  void Dequantize(size_t block, int unit_exponent, std::span<float> out) const;

  // Takes the pages of narrow blocks from the system now, and not when they are first written. All
  // blocks are zero.
  void Touch() { std::ranges::fill(low_.span(), 0); }

  // Blocks [first, first + count) are zero: costs next to nothing.
  void Clear(size_t first, size_t count);

 private:
  // A narrow block of 1 to 31 bits is that number.
  using Form = uint8_t;
  static constexpr Form kZero = 0;
  static constexpr Form kUnknown = 32;  // a narrow block of any bits
  static constexpr Form kWide = 33;
  alignas(64) static constexpr int32_t kZeros[kBlockElements] = {};

  int32_t* low(size_t block) { return low_.span().data() + block * kBlockElements; }
  int32_t* upper(size_t block) { return upper_.span().data() + block * kBlockElements; }
  [[nodiscard]] const int32_t* low(size_t block) const {
    return low_.span().data() + block * kBlockElements;
  }
  [[nodiscard]] const int32_t* upper(size_t block) const {
    return upper_.span().data() + block * kBlockElements;
  }

  const Kernels* kernels_ = nullptr;
  Arena<int32_t> low_;    // of narrow blocks the elements, of wide ones their lower halves
  Arena<int32_t> upper_;  // of wide blocks
  std::vector<Form> forms_;
};

}  // namespace ringmaster::exact
