#include "common/exact/word_hash.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "common/exact/arithmetic.h"

namespace ringmaster::exact {
namespace {

constexpr WordKeys kWordKeys = MakeWordKeys();
constexpr size_t kShort = 8;  // so few words fill no vector

// Vector units multiply the lower words of lanes of 64 bits: words with odd indices are brought
// there, and so are their keys.
struct OddKeys {
  alignas(64) uint32_t first[kBlockElements];
  alignas(64) uint32_t second[kBlockElements];
};
constexpr OddKeys MakeOddKeys() {
  OddKeys keys{};
  for (uint32_t i = 0; i < kBlockElements; i += 2) {
    keys.first[i] = kWordKeys.first[i + 1];
    keys.second[i] = kWordKeys.second[i + 1];
  }
  return keys;
}
constexpr OddKeys kOddKeys = MakeOddKeys();

// From word `from` on, in place of a vector unit.
void AddRest(const void* words, size_t from, size_t count, WordSums* sums) {
  for (size_t i = from; i < count; ++i) {
    uint32_t word;
    std::memcpy(&word, static_cast<const char*>(words) + i * sizeof(word), sizeof(word));
    sums->halves.first += WordProduct(word, kWordKeys.first[i]);
    sums->halves.second += WordProduct(word, kWordKeys.second[i]);
    sums->largest = std::max(sums->largest, word & kMagnitudeMask);
  }
}

WordSums SumPortable(const void* words, size_t count) {
  WordSums sums;
  AddRest(words, 0, count, &sums);
  return sums;
}

uint64_t SumOfWordLanes(__m256i lanes) {
  alignas(32) uint64_t sums[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(sums), lanes);
  return sums[0] + sums[1] + sums[2] + sums[3];
}

__m256i WordProducts(__m256i even, __m256i odd, const uint32_t* keys, const uint32_t* odd_keys) {
  const auto load = [](const uint32_t* from) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
  };
  return _mm256_add_epi64(_mm256_mul_epu32(even, load(keys)),
                          _mm256_mul_epu32(odd, load(odd_keys)));
}

WordSums SumAvx2(const void* words, size_t count) {
  constexpr size_t kWide = 8;
  __m256i first = _mm256_setzero_si256(), second = first, largest = first;
  const __m256i magnitude = _mm256_set1_epi32(static_cast<int>(kMagnitudeMask));
  size_t i = 0;
  for (; i + kWide <= count; i += kWide) {
    const __m256i even = _mm256_loadu_si256(
        reinterpret_cast<const __m256i*>(static_cast<const uint32_t*>(words) + i));
    const __m256i odd = _mm256_srli_epi64(even, 32);
    first =
        _mm256_add_epi64(first, WordProducts(even, odd, kWordKeys.first + i, kOddKeys.first + i));
    second = _mm256_add_epi64(second,
                              WordProducts(even, odd, kWordKeys.second + i, kOddKeys.second + i));
    largest = _mm256_max_epu32(largest, _mm256_and_si256(even, magnitude));
  }
  alignas(32) uint32_t maxima[kWide];
  _mm256_store_si256(reinterpret_cast<__m256i*>(maxima), largest);
  WordSums sums{{SumOfWordLanes(first), SumOfWordLanes(second)},
                *std::max_element(maxima, maxima + kWide)};
  AddRest(words, i, count, &sums);
  return sums;
}

#if defined(__GNUC__) && !defined(__clang__)
// g++ 12 takes the deliberately undefined vectors inside its own intrinsics for mistakes of ours.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

__attribute__((target("avx512f"))) WordSums SumAvx512(const void* words, size_t count) {
  constexpr size_t kWide = 16;
  __m512i first = _mm512_setzero_si512(), second = first, largest = first;
  __m512i odd_first = first, odd_second = first;
  const __m512i magnitude = _mm512_set1_epi32(static_cast<int>(kMagnitudeMask));
  size_t i = 0;
  for (; i + kWide <= count; i += kWide) {
    const __m512i even = _mm512_loadu_si512(static_cast<const uint32_t*>(words) + i);
    const __m512i odd = _mm512_srli_epi64(even, 32);
    first = _mm512_add_epi64(first, _mm512_mul_epu32(even, _mm512_load_si512(kWordKeys.first + i)));
    second =
        _mm512_add_epi64(second, _mm512_mul_epu32(even, _mm512_load_si512(kWordKeys.second + i)));
    odd_first =
        _mm512_add_epi64(odd_first, _mm512_mul_epu32(odd, _mm512_load_si512(kOddKeys.first + i)));
    odd_second =
        _mm512_add_epi64(odd_second, _mm512_mul_epu32(odd, _mm512_load_si512(kOddKeys.second + i)));
    largest = _mm512_max_epu32(largest, _mm512_and_si512(even, magnitude));
  }
  // Not by _mm512_reduce_add_epi64, which adds signed numbers.
  alignas(64) uint64_t lanes[2][8];
  _mm512_store_si512(lanes[0], _mm512_add_epi64(first, odd_first));
  _mm512_store_si512(lanes[1], _mm512_add_epi64(second, odd_second));
  WordSums sums;
  for (size_t lane = 0; lane < 8; ++lane) {
    sums.halves.first += lanes[0][lane];
    sums.halves.second += lanes[1][lane];
  }
  sums.largest = _mm512_reduce_max_epu32(largest);
  AddRest(words, i, count, &sums);
  return sums;
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

}  // namespace

std::vector<WordKernel> WordKernels() {
  std::vector<WordKernel> kernels = {{"portable", &SumPortable}, {"AVX2", &SumAvx2}};
  if (__builtin_cpu_supports("avx512f") != 0) kernels.push_back({"AVX-512", &SumAvx512});
  return kernels;
}

WordSums SumWords(const void* words, size_t count) {
  // Units that take 512 bits in two turns lose by the wider sums at the end.
  static const bool wide = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_is("intel") != 0;
  RING_CHECK(count <= kBlockElements, "a block has at most 256 elements");
  if (count < kShort) return SumPortable(words, count);
  return wide ? SumAvx512(words, count) : SumAvx2(words, count);
}

uint32_t AddWords(uint32_t name, uint32_t index, const void* words, size_t count, BlockSum* sum) {
  const WordSums sums = SumWords(words, count);
  sum->Add(FinishHash(sums.halves, name, index, static_cast<uint32_t>(count)));
  return sums.largest;
}

}  // namespace ringmaster::exact
