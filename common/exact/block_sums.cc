#include "common/exact/block_sums.h"

#include <algorithm>
#include <array>

#include "common/check.h"

namespace ringmaster::exact {
namespace {

// What a sum of a narrow block takes at most, so that one more |q| of less than 2^30 fits int32.
constexpr int kNarrowBits = 31;

constexpr int64_t kLimit = int64_t{1} << (kNarrowBits - 1);

bool FitsNarrow(std::span<const int64_t> elements) {
  return std::ranges::all_of(
      elements, [](int64_t element) { return element >= -kLimit && element < kLimit; });
}

}  // namespace

BlockSums::BlockSums(size_t blocks, const Kernels& kernels)
    : kernels_(&kernels),
      low_(blocks * kBlockElements, ArenaStart::kAnything),
      upper_(blocks * kBlockElements, ArenaStart::kAnything),
      forms_(blocks) {}

int BlockSums::NarrowWidth(size_t block, size_t count) const {
  if (forms_[block] != kUnknown) return (forms_[block] + 1) & ~1;
  return Width(*kernels_, std::span<const int32_t>(low(block), count));
}

void BlockSums::Read(size_t block, std::span<int64_t> out) const {
  RING_CHECK(out.size() <= kBlockElements, "a block has at most 256 elements");
  if (const int32_t* const elements = narrow(block); elements != nullptr) {
    std::copy_n(elements, out.size(), out.begin());
    return;
  }
  const int32_t* const lower = low(block);
  const int32_t* const higher = upper(block);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<int64_t>(static_cast<uint64_t>(higher[i]) << 32 |
                                  static_cast<uint32_t>(lower[i]));
  }
}

void BlockSums::Write(size_t block, std::span<const int64_t> elements) {
  RING_CHECK(elements.size() <= kBlockElements, "a block has at most 256 elements");
  forms_[block] = FitsNarrow(elements) ? kUnknown : kWide;
  int32_t* const lower = low(block);
  std::ranges::transform(elements, lower,
                         [](int64_t element) { return static_cast<int32_t>(element); });
  if (forms_[block] != kWide) return;
  std::ranges::transform(elements, upper(block),
                         [](int64_t element) { return static_cast<int32_t>(element >> 32); });
}

FlagKind BlockSums::QuantizeAdd(size_t block, std::span<const float> gradient, int unit_exponent,
                                float gradient_scale, uint32_t shards) {
  const int32_t* const addends = narrow(block);
  int bits = 0;
  if (addends != nullptr && QuantizeAddNarrow(*kernels_, gradient, unit_exponent, gradient_scale,
                                              shards, addends, low(block), &bits)) {
    forms_[block] = static_cast<Form>(bits);
    if (bits > kNarrowBits) [[unlikely]] {
      std::transform(low(block), low(block) + gradient.size(), upper(block),
                     [](int32_t sum) { return sum >> 31; });
      forms_[block] = kWide;
    }
    return FlagKind::kNone;
  }
  std::array<int64_t, kBlockElements> sums;
  const std::span<int64_t> part(sums.data(), gradient.size());
  Read(block, part);
  const FlagKind kind =
      exact::QuantizeAdd(*kernels_, gradient, unit_exponent, gradient_scale, shards, sums.data());
  Write(block, part);
  return kind;
}

void BlockSums::Dequantize(size_t block, int unit_exponent, std::span<float> out) const {
  if (const int32_t* const elements = narrow(block); elements != nullptr) {
    exact::Dequantize(*kernels_, std::span(elements, out.size()), unit_exponent, out.data());
    return;
  }
  std::array<int64_t, kBlockElements> sums;
  Read(block, std::span(sums).first(out.size()));
  exact::Dequantize(*kernels_, std::span<const int64_t>(sums.data(), out.size()), unit_exponent,
                    out.data());
}

void BlockSums::Clear(size_t first, size_t count) {
  std::fill_n(forms_.begin() + static_cast<ptrdiff_t>(first), count, kZero);
}

}  // namespace ringmaster::exact
