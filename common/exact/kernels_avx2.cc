// AVX2, which every build may use. A row of 16 lanes is two vectors.
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "common/exact/kernels.h"

// g++ 12 leaves some of these as calls, at a third of the speed.
#define RING_INLINE __attribute__((always_inline)) inline

namespace ringmaster::exact {
namespace {

// 2^30 units, or less: what the int32 conversion can hold. 0 where 2^shift is no normal float32.
uint32_t NarrowLimit(Quantization quantization) {
  if (quantization.shift < -126) return 0;
  const int exponent = std::min(30 - quantization.shift, 127);
  return std::min(static_cast<uint32_t>(exponent + 127) << 23, quantization.limit);
}

// Eight elements of which at least one does not fit int32; true when one was refused.
bool AddEightWide(const float* gradient, Quantization quantization, int64_t* sums) {
  return PortableKernels().quantize_add(gradient, 8, quantization, sums);
}

void AddWidened(__m128i q, int64_t* sums) {
  auto* to = reinterpret_cast<__m256i*>(sums);
  _mm256_storeu_si256(to, _mm256_add_epi64(_mm256_loadu_si256(to), _mm256_cvtepi32_epi64(q)));
}

bool QuantizeAddAvx2(const float* gradient, size_t count, Quantization quantization,
                     int64_t* sums) {
  const uint32_t narrow = NarrowLimit(quantization);
  const auto scale_bits = static_cast<uint32_t>(std::max(quantization.shift, -126) + 127) << 23;
  const __m256 scale = _mm256_set1_ps(std::bit_cast<float>(scale_bits));
  const __m256i last = _mm256_set1_epi32(static_cast<int>(narrow) - 1);
  const __m256i magnitude_mask = _mm256_set1_epi32(static_cast<int>(kMagnitudeMask));
  bool refused = false;
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 g = _mm256_loadu_ps(gradient + i);
    const __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(g), magnitude_mask);
    if (_mm256_movemask_epi8(_mm256_cmpgt_epi32(magnitude, last)) != 0) [[unlikely]] {
      refused |= AddEightWide(gradient + i, quantization, sums + i);
      continue;
    }
    // Exact, but where the product is under 2^-126 and rounds to 0 anyway.
    const __m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(g, scale));
    AddWidened(_mm256_castsi256_si128(q), sums + i);
    AddWidened(_mm256_extracti128_si256(q, 1), sums + i + 4);
  }
  return PortableKernels().quantize_add(gradient + i, count - i, quantization, sums + i) || refused;
}

// The low halves of eight int64.
RING_INLINE __m256i Narrow(__m256i a, __m256i b) {
  const __m256 mixed = _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88);
  return _mm256_permute4x64_epi64(_mm256_castps_si256(mixed), 0xd8);
}

RING_INLINE __m256i LoadInteger(const int64_t* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

bool FitsInt32(__m256i a, __m256i b, __m256i narrow) {
  const __m256i wide_a = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(narrow));
  const __m256i wide_b = _mm256_cvtepi32_epi64(_mm256_extracti128_si256(narrow, 1));
  const __m256i lost = _mm256_or_si256(_mm256_xor_si256(a, wide_a), _mm256_xor_si256(b, wide_b));
  return _mm256_testz_si256(lost, lost) != 0;
}

void DequantizeAvx2(const int64_t* q, size_t count, float scale, float* out) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i a = LoadInteger(q + i);
    const __m256i b = LoadInteger(q + i + 4);
    const __m256i narrow = Narrow(a, b);
    if (FitsInt32(a, b, narrow)) [[likely]] {
      const __m256 rounded = _mm256_cvtepi32_ps(narrow);
      _mm256_storeu_ps(out + i, _mm256_mul_ps(rounded, _mm256_set1_ps(scale)));
    } else {
      PortableKernels().dequantize(q + i, 8, scale, out + i);
    }
  }
  PortableKernels().dequantize(q + i, count - i, scale, out + i);
}

int BitsAvx2(const int64_t* block, size_t count) {
  __m256i folded = _mm256_setzero_si256();
  __m256i any = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const __m256i v = LoadInteger(block + i);
    const __m256i sign = _mm256_cmpgt_epi64(_mm256_setzero_si256(), v);
    any = _mm256_or_si256(any, v);
    folded = _mm256_or_si256(folded, _mm256_xor_si256(v, sign));
  }
  // The lanes' OR needs as many bits as the lanes, and so does one that is not negative beside -1.
  int64_t rest[8] = {};
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(rest), folded);
  if (_mm256_testz_si256(any, any) == 0) rest[4] = -1;
  std::copy(block + i, block + count, rest + 5);
  return PortableKernels().bits(rest, 8);
}

struct Row {
  __m256i low;   // lanes 0 to 7
  __m256i high;  // lanes 8 to 15
};

RING_INLINE Row LoadRow(const int64_t* block, size_t row) {
  const int64_t* first = block + kLanes * row;
  return {Narrow(LoadInteger(first), LoadInteger(first + 4)),
          Narrow(LoadInteger(first + 8), LoadInteger(first + 12))};
}

// The low kWidth bits of `row` go to the top of `word`, which moves down: two words become one.
template <int kShift>
RING_INLINE __m256i Funnel(__m256i word, __m256i row) {
  return _mm256_or_si256(_mm256_srli_epi32(word, kShift), _mm256_slli_epi32(row, 32 - kShift));
}

RING_INLINE void StoreWord(uint8_t* out, size_t word, Row row) {
  auto* to = reinterpret_cast<__m256i*>(out + 64 * word);
  _mm256_storeu_si256(to, row.low);
  _mm256_storeu_si256(to + 1, row.high);
}

RING_INLINE Row LoadWord(const uint8_t* in, size_t word) {
  const auto* from = reinterpret_cast<const __m256i*>(in + 64 * word);
  return {_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)};
}

template <int kWidth, size_t kRow>
RING_INLINE void PackRows(const int64_t* block, Row word, uint8_t* out) {
  if constexpr (kRow < kRows) {
    constexpr int kUsed = static_cast<int>(kRow) * kWidth % 32;
    const Row row = LoadRow(block, kRow);
    if constexpr (kUsed + kWidth < 32) {
      word = {Funnel<kWidth>(word.low, row.low), Funnel<kWidth>(word.high, row.high)};
      PackRows<kWidth, kRow + 1>(block, word, out);
    } else {
      constexpr int kFree = 32 - kUsed;
      StoreWord(out, kRow * kWidth / 32,
                {Funnel<kFree>(word.low, row.low), Funnel<kFree>(word.high, row.high)});
      word = {_mm256_slli_epi32(row.low, 32 - kWidth), _mm256_slli_epi32(row.high, 32 - kWidth)};
      PackRows<kWidth, kRow + 1>(block, word, out);
    }
  }
}

template <int kWidth>
void PackAvx2(const int64_t* block, uint8_t* out) {
  PackRows<kWidth, 0>(block, {_mm256_setzero_si256(), _mm256_setzero_si256()}, out);
}

template <bool kAdd>
RING_INLINE void StoreQuarter(__m128i quarter, int64_t* to) {
  __m256i wide = _mm256_cvtepi32_epi64(quarter);
  if constexpr (kAdd) wide = _mm256_add_epi64(wide, LoadInteger(to));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), wide);
}

template <bool kAdd>
RING_INLINE void StoreRow(Row row, int64_t* to) {
  StoreQuarter<kAdd>(_mm256_castsi256_si128(row.low), to);
  StoreQuarter<kAdd>(_mm256_extracti128_si256(row.low, 1), to + 4);
  StoreQuarter<kAdd>(_mm256_castsi256_si128(row.high), to + 8);
  StoreQuarter<kAdd>(_mm256_extracti128_si256(row.high, 1), to + 12);
}

// The row's bits go to the top of the word, then down again with their sign.
template <int kWidth, bool kAdd, size_t kRow>
RING_INLINE void UnpackRows(const uint8_t* in, int64_t* block) {
  if constexpr (kRow < kRows) {
    constexpr int kUsed = static_cast<int>(kRow) * kWidth % 32;
    constexpr size_t kWord = kRow * kWidth / 32;
    Row row = LoadWord(in, kWord);
    if constexpr (kUsed + kWidth <= 32) {
      constexpr int kUp = 32 - kUsed - kWidth;
      row = {_mm256_slli_epi32(row.low, kUp), _mm256_slli_epi32(row.high, kUp)};
    } else {
      constexpr int kDown = kUsed + kWidth - 32;
      const Row next = LoadWord(in, kWord + 1);
      row = {Funnel<kDown>(row.low, next.low), Funnel<kDown>(row.high, next.high)};
    }
    row = {_mm256_srai_epi32(row.low, 32 - kWidth), _mm256_srai_epi32(row.high, 32 - kWidth)};
    StoreRow<kAdd>(row, block + kLanes * kRow);
    UnpackRows<kWidth, kAdd, kRow + 1>(in, block);
  }
}

template <int kWidth, bool kAdd>
void UnpackAvx2(const uint8_t* in, int64_t* block) {
  UnpackRows<kWidth, kAdd, 0>(in, block);
}

template <size_t... kIndex>
constexpr Kernels Table(std::index_sequence<kIndex...>) {
  return {"avx2",
          QuantizeAddAvx2,
          DequantizeAvx2,
          BitsAvx2,
          {nullptr, PackAvx2<2 * kIndex + 2>...},
          {nullptr, UnpackAvx2<2 * kIndex + 2, false>...},
          {nullptr, UnpackAvx2<2 * kIndex + 2, true>...}};
}

constexpr Kernels kAvx2 = Table(std::make_index_sequence<kWidths - 1>());

}  // namespace

const Kernels& Avx2Kernels() { return kAvx2; }

}  // namespace ringmaster::exact
