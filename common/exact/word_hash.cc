#include "common/exact/word_hash.h"

#include <immintrin.h>

#include <cstring>

#include "common/check.h"

namespace ringmaster::exact {
namespace {

constexpr WordKeys kWordKeys = MakeWordKeys();
constexpr size_t kRow = kHashLanes;  // words that go through a vector unit side by side

Halves SumPortable(const void* words, size_t count) {
  uint32_t lanes[kHashLanes] = {};
  for (size_t i = 0; i < count; ++i) {
    uint32_t word;
    std::memcpy(&word, static_cast<const char*>(words) + i * sizeof(word), sizeof(word));
    lanes[i % kHashLanes] += WordTerm(word, kWordKeys.words[i]);
  }
  Halves halves;
  for (size_t lane = 0; lane < kHashLanes; ++lane) {
    halves.first += uint64_t{lanes[lane]} * kWordKeys.first[lane];
    halves.second += uint64_t{lanes[lane]} * kWordKeys.second[lane];
  }
  return halves;
}

__m256i LoadHalfRow(const uint32_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

__m256i HalfRowTerms(const uint32_t* words, const uint32_t* keys) {
  return _mm256_madd_epi16(LoadHalfRow(words), LoadHalfRow(keys));
}

// The sums of eight lanes times their keys. A vector multiplies the lower words of its lanes of 64
// bits: sums at odd places are brought there, and so are their keys.
__m256i HalfRowProducts(__m256i sums, const uint32_t* lane_keys) {
  const __m256i keys = LoadHalfRow(lane_keys);
  return _mm256_add_epi64(
      _mm256_mul_epu32(sums, keys),
      _mm256_mul_epu32(_mm256_srli_epi64(sums, 32), _mm256_srli_epi64(keys, 32)));
}

Halves HalvesOf(__m256i first, __m256i second) {
  const __m256i pairs =
      _mm256_add_epi64(_mm256_unpacklo_epi64(first, second), _mm256_unpackhi_epi64(first, second));
  const __m128i halves =
      _mm_add_epi64(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  return {static_cast<uint64_t>(_mm_cvtsi128_si64(halves)),
          static_cast<uint64_t>(_mm_extract_epi64(halves, 1))};
}

Halves SumAvx2(const void* words, size_t count) {
  const auto* const from = static_cast<const uint32_t*>(words);
  __m256i low = _mm256_setzero_si256(), high = low;  // lanes 0 to 7, and 8 to 15
  size_t i = 0;
  for (; i + kRow <= count; i += kRow) {
    low = _mm256_add_epi32(low, HalfRowTerms(from + i, kWordKeys.words + i));
    high = _mm256_add_epi32(high, HalfRowTerms(from + i + 8, kWordKeys.words + i + 8));
  }
  if (i < count) {
    uint32_t last[kRow] = {};
    std::memcpy(last, from + i, (count - i) * sizeof(uint32_t));
    low = _mm256_add_epi32(low, HalfRowTerms(last, kWordKeys.words + i));
    high = _mm256_add_epi32(high, HalfRowTerms(last + 8, kWordKeys.words + i + 8));
  }
  return HalvesOf(_mm256_add_epi64(HalfRowProducts(low, kWordKeys.first),
                                   HalfRowProducts(high, kWordKeys.first + 8)),
                  _mm256_add_epi64(HalfRowProducts(low, kWordKeys.second),
                                   HalfRowProducts(high, kWordKeys.second + 8)));
}

#if defined(__GNUC__) && !defined(__clang__)
// g++ 12 takes the deliberately undefined vectors inside its own intrinsics for mistakes of ours.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

__attribute__((target("avx512f,avx512bw"))) Halves SumAvx512(const void* words, size_t count) {
  const auto* const from = static_cast<const uint32_t*>(words);
  __m512i sums = _mm512_setzero_si512();
  size_t i = 0;
  for (; i + kRow <= count; i += kRow) {
    sums = _mm512_add_epi32(sums, _mm512_madd_epi16(_mm512_loadu_si512(from + i),
                                                    _mm512_load_si512(kWordKeys.words + i)));
  }
  if (i < count) {
    const auto lanes = static_cast<__mmask16>((1U << (count - i)) - 1);
    sums = _mm512_add_epi32(sums, _mm512_madd_epi16(_mm512_maskz_loadu_epi32(lanes, from + i),
                                                    _mm512_load_si512(kWordKeys.words + i)));
  }
  const __m512i odd = _mm512_srli_epi64(sums, 32);
  const __m512i first = _mm512_load_si512(kWordKeys.first);
  const __m512i second = _mm512_load_si512(kWordKeys.second);
  const __m512i a = _mm512_add_epi64(_mm512_mul_epu32(sums, first),
                                     _mm512_mul_epu32(odd, _mm512_srli_epi64(first, 32)));
  const __m512i b = _mm512_add_epi64(_mm512_mul_epu32(sums, second),
                                     _mm512_mul_epu32(odd, _mm512_srli_epi64(second, 32)));
  const __m512i pairs = _mm512_add_epi64(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  const __m256i four =
      _mm256_add_epi64(_mm512_castsi512_si256(pairs), _mm512_extracti64x4_epi64(pairs, 1));
  const __m128i halves =
      _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
  return {static_cast<uint64_t>(_mm_cvtsi128_si64(halves)),
          static_cast<uint64_t>(_mm_extract_epi64(halves, 1))};
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

bool HasAvx512() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0;
}

}  // namespace

std::vector<WordKernel> WordKernels() {
  std::vector<WordKernel> kernels = {{"portable", &SumPortable}, {"AVX2", &SumAvx2}};
  if (HasAvx512()) kernels.push_back({"AVX-512", &SumAvx512});
  return kernels;
}

Halves SumWords(const void* words, size_t count) {
  static const bool wide = HasAvx512();
  RING_CHECK(count <= kBlockElements, "a block has at most 256 elements");
  return wide ? SumAvx512(words, count) : SumAvx2(words, count);
}

void AddWords(uint32_t name, uint32_t index, const void* words, size_t count, BlockSum* sum) {
  sum->Add(FinishHash(SumWords(words, count), name, index, static_cast<uint32_t>(count)));
}

}  // namespace ringmaster::exact
