#include "common/exact/block_sums.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>

#include "common/check.h"
#include "common/exact/codec.h"

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

void BlockSums::Free::operator()(int32_t* data) const { std::free(data); }

BlockSums::Memory BlockSums::Allocate(size_t blocks) {
  if (blocks == 0) return nullptr;
  auto* const data =
      static_cast<int32_t*>(std::aligned_alloc(64, blocks * kBlockElements * sizeof(int32_t)));
  if (data == nullptr) throw std::bad_alloc();
  return Memory(data);
}

BlockSums::BlockSums(size_t blocks)
    : low_(Allocate(blocks)), upper_(Allocate(blocks)), wide_(blocks) {
  Clear(0, blocks);
}

void BlockSums::Read(size_t block, std::span<int64_t> out) const {
  RING_CHECK(out.size() <= kBlockElements, "a block has at most 256 elements");
  const int32_t* const lower = low(block);
  if (wide_[block] == 0) {
    std::copy_n(lower, out.size(), out.begin());
    return;
  }
  const int32_t* const higher = upper(block);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<int64_t>(static_cast<uint64_t>(higher[i]) << 32 |
                                  static_cast<uint32_t>(lower[i]));
  }
}

void BlockSums::Write(size_t block, std::span<const int64_t> elements) {
  RING_CHECK(elements.size() <= kBlockElements, "a block has at most 256 elements");
  wide_[block] = FitsNarrow(elements) ? 0 : 1;
  int32_t* const lower = low(block);
  std::ranges::transform(elements, lower,
                         [](int64_t element) { return static_cast<int32_t>(element); });
  if (wide_[block] == 0) return;
  std::ranges::transform(elements, upper(block),
                         [](int64_t element) { return static_cast<int32_t>(element >> 32); });
}

FlagKind BlockSums::QuantizeAdd(size_t block, std::span<const float> gradient, int unit_exponent,
                                float gradient_scale, uint32_t shards) {
  if (wide_[block] == 0) {
    int bits = 0;
    if (QuantizeAddNarrow(gradient, unit_exponent, gradient_scale, shards, low(block), &bits)) {
      if (bits > kNarrowBits) [[unlikely]] {
        std::transform(low(block), low(block) + gradient.size(), upper(block),
                       [](int32_t sum) { return sum >> 31; });
        wide_[block] = 1;
      }
      return FlagKind::kNone;
    }
  }
  std::array<int64_t, kBlockElements> sums;
  const std::span<int64_t> part(sums.data(), gradient.size());
  Read(block, part);
  const FlagKind kind =
      exact::QuantizeAdd(gradient, unit_exponent, gradient_scale, shards, sums.data());
  Write(block, part);
  return kind;
}

void BlockSums::Dequantize(size_t block, int unit_exponent, std::span<float> out) const {
  if (wide_[block] == 0) {
    exact::Dequantize(std::span<const int32_t>(low(block), out.size()), unit_exponent, out.data());
    return;
  }
  std::array<int64_t, kBlockElements> sums;
  Read(block, std::span(sums).first(out.size()));
  exact::Dequantize(std::span<const int64_t>(sums.data(), out.size()), unit_exponent, out.data());
}

void BlockSums::Clear(size_t first, size_t count) {
  std::fill_n(low(first), count * kBlockElements, 0);
  std::fill_n(wide_.begin() + static_cast<ptrdiff_t>(first), count, 0);
}

}  // namespace ringmaster::exact
