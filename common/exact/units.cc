#include "common/exact/units.h"

#include <algorithm>
#include <array>
#include <bit>

#include "common/check.h"
#include "common/exact/kernels.h"
#include "common/exact/word_hash.h"

namespace ringmaster::exact {

uint32_t LargestMagnitude(std::span<const float> block) {
  static const auto largest = BestKernels().largest_magnitude;
  return largest(block.data(), block.size());
}

Units::Units(const BlockLayout* layout, int precision_bits)
    : layout_(layout), precision_bits_(precision_bits), exponents_(layout->block_count()) {
  RING_CHECK(precision_bits >= 8 && precision_bits <= 24, "precision_bits is 8 to 24");
  Reset();
}

void Units::Reset() {
  std::fill(exponents_.begin(), exponents_.end(),
            static_cast<int16_t>(precision_bits_ + kSmallestUnitExponent));
}

void Units::Advance(std::span<const float> reduced) {
  RING_CHECK(reduced.size() == layout_->arena_elements(), "gradients in arena layout");
  std::vector<int16_t> own(exponents_.size());
  for (size_t b = 0; b < own.size(); ++b) {
    own[b] = OwnExponent(reduced.subspan(b * kBlockElements, layout_->blocks()[b].count));
  }
  Settle(own);
}

int16_t Units::OwnExponent(std::span<const float> reduced) {
  return static_cast<int16_t>(ExponentOf(LargestMagnitude(reduced)));
}

void Units::Settle(std::span<const int16_t> own) {
  RING_CHECK(own.size() == exponents_.size(), "an exponent of each block");
  for (const TensorRange& tensor : layout_->tensors()) {
    const std::span<const int16_t> blocks = own.subspan(tensor.first_block, tensor.block_count);
    const int lowest = LowestExponent(*std::ranges::max_element(blocks), precision_bits_);
    std::ranges::transform(blocks, exponents_.begin() + static_cast<ptrdiff_t>(tensor.first_block),
                           [&](int16_t e) { return ClampExponent(e, lowest); });
  }
}

BlockSum Units::Hash() const {
  BlockSum sum;
  std::array<uint32_t, kBlockElements> words;
  for (const TensorRange& tensor : layout_->tensors()) {
    const std::span<const int16_t> all =
        exponents().subspan(tensor.first_block, tensor.block_count);
    uint32_t index = 0;
    for (size_t at = 0; at < all.size(); at += kBlockElements) {
      const auto part = all.subspan(at, std::min<size_t>(kBlockElements, all.size() - at));
      std::ranges::transform(part, words.begin(), WordOfExponent);
      AddWords(NameOfPart(StatePart::kExponents, tensor.tensor), index++, words.data(), part.size(),
               &sum);
    }
  }
  return sum;
}

Status Units::Restore(std::span<const int16_t> exponents) {
  if (exponents.size() != exponents_.size()) {
    return InvalidArgument("block exponents: {} of them, expected {}: another model's state?",
                           exponents.size(), exponents_.size());
  }
  const int smallest = precision_bits_ + kSmallestUnitExponent;
  for (size_t b = 0; b < exponents.size(); ++b) {
    if (exponents[b] < smallest || exponents[b] > kLargestExponent) {
      return InvalidArgument("block exponents: {} at block {}, expected {} to {}", exponents[b], b,
                             smallest, kLargestExponent);
    }
  }
  std::copy(exponents.begin(), exponents.end(), exponents_.begin());
  return absl::OkStatus();
}

}  // namespace ringmaster::exact
