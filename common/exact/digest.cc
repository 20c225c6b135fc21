#include "common/exact/digest.h"

#include <immintrin.h>

#include <string>

#include "common/check.h"
#include "common/exact/block_hash.h"

namespace ringmaster::exact {
namespace {

constexpr ElementKeys kElementKeys = MakeElementKeys();

__m256i KeyedProducts(__m256i integers, const uint64_t* keys) {
  const __m256i key = _mm256_load_si256(reinterpret_cast<const __m256i*>(keys));
  const __m256i x = _mm256_add_epi32(integers, key);
  return _mm256_mul_epu32(x, _mm256_srli_epi64(x, 32));
}

uint64_t SumOfLanes(__m256i lanes) {
  std::array<uint64_t, 4> sums;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums.data()), lanes);
  return sums[0] + sums[1] + sums[2] + sums[3];
}

__m256i LoadFour(const int64_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
__m256i LoadFour(const int32_t* from) {
  return _mm256_cvtepi32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// NH of UMAC (Black, Halevi, Krawczyk, Krovetz and Rogaway, "UMAC: fast and secure message
// authentication", 1999), twice with independent keys.
template <typename T>
Halves Compress(std::span<const T> integers) {
  __m256i first = _mm256_setzero_si256();
  __m256i second = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + 4 <= integers.size(); i += 4) {
    const __m256i x = LoadFour(integers.data() + i);
    first = _mm256_add_epi64(first, KeyedProducts(x, kElementKeys.first + i));
    second = _mm256_add_epi64(second, KeyedProducts(x, kElementKeys.second + i));
  }
  Halves halves{SumOfLanes(first), SumOfLanes(second)};
  for (; i < integers.size(); ++i) {
    halves.first += KeyedProduct(integers[i], kElementKeys.first[i]);
    halves.second += KeyedProduct(integers[i], kElementKeys.second[i]);
  }
  return halves;
}

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
  AddHash(FinishHash(Compress(integers), tensor, index, static_cast<uint32_t>(integers.size())),
          &sum_);
}

void BlockSum::Add(uint32_t tensor, uint32_t index, std::span<const int32_t> integers) {
  RING_CHECK(integers.size() <= kBlockElements, "a block has at most 256 elements");
  AddHash(FinishHash(Compress(integers), tensor, index, static_cast<uint32_t>(integers.size())),
          &sum_);
}

void BlockSum::Add(const BlockSum& other) { AddHash(other.sum_, &sum_); }

std::array<uint8_t, 16> BlockSum::bytes() const {
  std::array<uint8_t, 16> bytes;
  AppendLittleEndian(sum_.first, bytes.data());
  AppendLittleEndian(sum_.second, bytes.data() + 8);
  return bytes;
}

Sha256Digest FirstDigest(const Sha256Digest& states_digest) {
  Sha256 hash;
  hash.Update(std::string("ringmaster digest 0"));
  hash.Update(states_digest);
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
