#include "common/exact/digest.h"

#include <string>

#include "common/check.h"
#include "common/exact/word_hash.h"

namespace ringmaster::exact {
namespace {

void AppendLittleEndian(uint64_t value, uint8_t* out) {
  for (int byte = 0; byte < 8; ++byte) out[byte] = static_cast<uint8_t>(value >> (8 * byte));
}

}  // namespace

BlockSum BlockSum::OfHalves(uint64_t low, uint64_t high) {
  BlockSum sum;
  sum.sum_ = {low, high};
  return sum;
}

BlockSum BlockSum::OfBytes(const std::array<uint8_t, 16>& bytes) {
  const auto half = [&](size_t from) {
    uint64_t value = 0;
    for (size_t i = 8; i-- > 0;) value = value << 8 | bytes[from + i];
    return value;
  };
  return OfHalves(half(0), half(8));
}

void BlockSum::Add(uint32_t tensor, uint32_t index, std::span<const int64_t> integers) {
  RING_CHECK(integers.size() <= kBlockElements, "a block has at most 256 elements");
  const size_t count = integers.size();
  std::array<uint32_t, kBlockElements> low{}, high{};
  uint32_t any = 0;
  for (size_t i = 0; i < count; ++i) {
    low[i] = LowWord(integers[i]);
    high[i] = HighWord(integers[i]);
    any |= high[i];
  }
  AddWords(tensor, index, low.data(), count, this);
  if (any == 0) return;
  Add(FinishHash(SumWords(high.data(), count), tensor, index,
                 HighCount(static_cast<uint32_t>(count))));
}

void BlockSum::Add(uint32_t tensor, uint32_t index, std::span<const int32_t> integers) {
  AddWords(tensor, index, integers.data(), integers.size(), this);
}

void BlockSum::Add(const BlockSum& other) { AddHash(other.sum_, &sum_); }

std::array<uint8_t, 16> BlockSum::bytes() const {
  std::array<uint8_t, 16> bytes;
  AppendLittleEndian(sum_.first, bytes.data());
  AppendLittleEndian(sum_.second, bytes.data() + 8);
  return bytes;
}

Sha256Digest FirstDigest(const Sha256Digest& states_digest, const std::optional<BlockSum>& given) {
  Sha256 hash;
  hash.Update(std::string("ringmaster digest 0"));
  hash.Update(states_digest);
  if (given) hash.Update(given->bytes());
  return hash.Finish();
}

Sha256Digest NextDigest(const DigestLink& link, uint64_t step, const BlockSum& state) {
  std::array<uint8_t, 8> step_bytes;
  AppendLittleEndian(step, step_bytes.data());
  Sha256 hash;
  hash.Update(link.before);
  hash.Update(step_bytes);
  hash.Update(link.maps);
  hash.Update(link.sums.bytes());
  hash.Update(state.bytes());
  return hash.Finish();
}

}  // namespace ringmaster::exact
