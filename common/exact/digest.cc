#include "common/exact/digest.h"

#include <immintrin.h>

#include <bit>
#include <string>

#include "common/check.h"

namespace ringmaster::exact {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio

// The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", 2014): a bijection.
constexpr uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Keys of the elements of a block, one table for each half of the sum. The high word is never 0 or
// 1, so that (high word of an integer that fits 32 bits) + key is never 0.
struct ElementKeys {
  alignas(64) std::array<uint64_t, kBlockElements> first;
  alignas(64) std::array<uint64_t, kBlockElements> second;
};

constexpr ElementKeys MakeElementKeys() {
  ElementKeys keys{};
  for (uint32_t i = 0; i < kBlockElements; ++i) {
    keys.first[i] = Mix((2 * i + 1) * kGolden) | uint64_t{2} << 32;
    keys.second[i] = Mix((2 * i + 2) * kGolden) | uint64_t{2} << 32;
  }
  return keys;
}

constexpr ElementKeys kElementKeys = MakeElementKeys();

struct Halves {
  uint64_t first = 0;
  uint64_t second = 0;
};

uint64_t KeyedProduct(int64_t integer, uint64_t key) {
  const auto x = static_cast<uint64_t>(integer);
  const auto low = static_cast<uint32_t>(x) + static_cast<uint32_t>(key);
  const auto high = static_cast<uint32_t>(x >> 32) + static_cast<uint32_t>(key >> 32);
  return uint64_t{low} * high;
}

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

// NH of UMAC (Black, Halevi, Krawczyk, Krovetz and Rogaway, "UMAC: fast and secure message
// authentication", 1999), twice with independent keys.
Halves Compress(std::span<const int64_t> integers) {
  __m256i first = _mm256_setzero_si256();
  __m256i second = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + 4 <= integers.size(); i += 4) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(integers.data() + i));
    first = _mm256_add_epi64(first, KeyedProducts(x, kElementKeys.first.data() + i));
    second = _mm256_add_epi64(second, KeyedProducts(x, kElementKeys.second.data() + i));
  }
  Halves halves{SumOfLanes(first), SumOfLanes(second)};
  for (; i < integers.size(); ++i) {
    halves.first += KeyedProduct(integers[i], kElementKeys.first[i]);
    halves.second += KeyedProduct(integers[i], kElementKeys.second[i]);
  }
  return halves;
}

// A bijection of the halves, chosen by block and count: three rounds of a Feistel-like network.
Halves Finish(Halves halves, uint32_t tensor, uint32_t index, size_t count) {
  const uint64_t key = Mix((uint64_t{tensor} << 32 | index) + kGolden);
  const uint64_t second_key = Mix(key + count * kGolden);
  halves.first = Mix(halves.first ^ key);
  halves.second = Mix((halves.second ^ second_key) + halves.first);
  halves.first += Mix(halves.second ^ key);
  return halves;
}

void AppendLittleEndian(uint64_t value, uint8_t* out) {
  for (int byte = 0; byte < 8; ++byte) out[byte] = static_cast<uint8_t>(value >> (8 * byte));
}

}  // namespace

void BlockSum::Add(uint32_t tensor, uint32_t index, std::span<const int64_t> integers) {
  RING_CHECK(integers.size() <= kBlockElements, "a block has at most 256 elements");
  const Halves hash = Finish(Compress(integers), tensor, index, integers.size());
  BlockSum term;
  term.low_ = hash.first;
  term.high_ = hash.second;
  Add(term);
}

void BlockSum::Add(const BlockSum& other) {
  low_ += other.low_;
  high_ += other.high_ + (low_ < other.low_ ? 1 : 0);
}

std::array<uint8_t, 16> BlockSum::bytes() const {
  std::array<uint8_t, 16> bytes;
  AppendLittleEndian(low_, bytes.data());
  AppendLittleEndian(high_, bytes.data() + 8);
  return bytes;
}

Sha256Digest FirstDigest(const Sha256Digest& result_digest) {
  Sha256 hash;
  hash.Update(std::string("ringmaster digest 0"));
  hash.Update(result_digest);
  return hash.Finish();
}

Sha256Digest NextDigest(const Sha256Digest& digest, uint64_t step, const BlockSum& sum) {
  std::array<uint8_t, 8> step_bytes;
  AppendLittleEndian(step, step_bytes.data());
  Sha256 hash;
  hash.Update(digest);
  hash.Update(step_bytes);
  hash.Update(sum.bytes());
  return hash.Finish();
}

}  // namespace ringmaster::exact
