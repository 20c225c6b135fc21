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

RING_INLINE __m256i LoadNarrow(const int32_t* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

// The lanes' OR.
RING_INLINE uint32_t FoldLanes(__m256i folded) {
  const __m128i four =
      _mm_or_si128(_mm256_castsi256_si128(folded), _mm256_extracti128_si256(folded, 1));
  const __m128i two = _mm_or_si128(four, _mm_shuffle_epi32(four, 0x4e));
  const __m128i one = _mm_or_si128(two, _mm_shuffle_epi32(two, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(one));
}

// What the bits of sums are computed from: all of them, and each folded to one that is not
// negative.
struct Seen {
  __m256i any = _mm256_setzero_si256();
  __m256i folded = _mm256_setzero_si256();
};

RING_INLINE void See(__m256i sum, __m256i sign, Seen* seen) {
  seen->any = _mm256_or_si256(seen->any, sum);
  seen->folded = _mm256_or_si256(seen->folded, _mm256_xor_si256(sum, sign));
}

// The lanes' OR needs as many bits as the lanes, and so does one that is not negative beside -1.
RING_INLINE int BitsOf(const Seen& seen, int64_t) {
  int64_t lanes[5] = {};
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), seen.folded);
  if (_mm256_testz_si256(seen.any, seen.any) == 0) lanes[4] = -1;
  return PortableKernels().wide.bits(lanes, 5);
}

RING_INLINE int BitsOf(const Seen& seen, int32_t) {
  if (_mm256_testz_si256(seen.any, seen.any) != 0) return 0;
  return 33 - std::countl_zero(FoldLanes(seen.folded));
}

// By lane, of `count` values, a multiple of 8.
RING_INLINE __m256i LargestLanes(const float* values, size_t count) {
  const __m256i magnitude_mask = _mm256_set1_epi32(static_cast<int>(kMagnitudeMask));
  __m256i largest = _mm256_setzero_si256();
  for (size_t i = 0; i < count; i += 8) {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(values + i));
    largest = _mm256_max_epi32(largest, _mm256_and_si256(bits, magnitude_mask));
  }
  return largest;
}

uint32_t LargestMagnitudeAvx2(const float* values, size_t count) {
  const size_t whole = count & ~size_t{7};
  alignas(32) uint32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), LargestLanes(values, whole));
  const uint32_t rest = PortableKernels().largest_magnitude(values + whole, count - whole);
  return std::max(rest, *std::max_element(lanes, lanes + 8));
}

bool QuantizeAddNarrowAvx2(const float* gradient, size_t count, Quantization quantization,
                           uint32_t limit, const int32_t* addends, int32_t* sums, int* bits) {
  const size_t whole = count & ~size_t{7};
  const __m256i largest = LargestLanes(gradient, whole);
  const __m256i last = _mm256_set1_epi32(static_cast<int>(limit) - 1);
  if (_mm256_movemask_epi8(_mm256_cmpgt_epi32(largest, last)) != 0) return false;
  int rest_bits = 0;
  if (whole < count &&
      !PortableKernels().quantize_add_narrow(gradient + whole, count - whole, quantization, limit,
                                             addends + whole, sums + whole, &rest_bits)) {
    return false;
  }
  const __m256 scale =
      _mm256_set1_ps(std::bit_cast<float>(static_cast<uint32_t>(quantization.shift + 127) << 23));
  Seen seen;
  for (size_t i = 0; i < whole; i += 8) {
    // Exact, but where the product is under 2^-126 and rounds to 0 anyway.
    const __m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(gradient + i), scale));
    const __m256i sum = _mm256_add_epi32(LoadNarrow(addends + i), q);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + i), sum);
    See(sum, _mm256_srai_epi32(sum, 31), &seen);
  }
  *bits = std::max(BitsOf(seen, int32_t{}), rest_bits);
  return true;
}

void DequantizeNarrowAvx2(const int32_t* q, size_t count, float scale, float* out) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 rounded = _mm256_cvtepi32_ps(LoadNarrow(q + i));
    _mm256_storeu_ps(out + i, _mm256_mul_ps(rounded, _mm256_set1_ps(scale)));
  }
  PortableKernels().narrow.dequantize(q + i, count - i, scale, out + i);
}

int BitsNarrowAvx2(const int32_t* block, size_t count) {
  Seen seen;
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i v = LoadNarrow(block + i);
    See(v, _mm256_srai_epi32(v, 31), &seen);
  }
  return std::max(BitsOf(seen, int32_t{}), PortableKernels().narrow.bits(block + i, count - i));
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
      PortableKernels().wide.dequantize(q + i, 8, scale, out + i);
    }
  }
  PortableKernels().wide.dequantize(q + i, count - i, scale, out + i);
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
  return PortableKernels().wide.bits(rest, 8);
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

RING_INLINE Row LoadRow(const int32_t* block, size_t row) {
  return {LoadNarrow(block + kLanes * row), LoadNarrow(block + kLanes * row + 8)};
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

template <int kWidth, size_t kRow, typename T>
RING_INLINE void PackRows(const T* block, Row word, uint8_t* out) {
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

template <int kWidth, typename T>
void PackAvx2(const T* block, uint8_t* out) {
  PackRows<kWidth, 0>(block, {_mm256_setzero_si256(), _mm256_setzero_si256()}, out);
}

RING_INLINE void StoreQuarter(__m128i quarter, const int64_t* addends, int64_t* to, Seen* seen) {
  __m256i wide = _mm256_cvtepi32_epi64(quarter);
  if (addends != nullptr) {
    wide = _mm256_add_epi64(wide, LoadInteger(addends));
    See(wide, _mm256_cmpgt_epi64(_mm256_setzero_si256(), wide), seen);
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), wide);
}

// Where there are no addends (a constant where this is inlined) the row alone, and nothing is seen.
RING_INLINE void StoreRow(Row row, const int64_t* addends, int64_t* to, Seen* seen) {
  const auto at = [&](size_t i) { return addends == nullptr ? nullptr : addends + i; };
  StoreQuarter(_mm256_castsi256_si128(row.low), at(0), to, seen);
  StoreQuarter(_mm256_extracti128_si256(row.low, 1), at(4), to + 4, seen);
  StoreQuarter(_mm256_castsi256_si128(row.high), at(8), to + 8, seen);
  StoreQuarter(_mm256_extracti128_si256(row.high, 1), at(12), to + 12, seen);
}

RING_INLINE void StoreRow(Row row, const int32_t* addends, int32_t* to, Seen* seen) {
  if (addends != nullptr) {
    row.low = _mm256_add_epi32(row.low, LoadNarrow(addends));
    row.high = _mm256_add_epi32(row.high, LoadNarrow(addends + 8));
    See(row.low, _mm256_srai_epi32(row.low, 31), seen);
    See(row.high, _mm256_srai_epi32(row.high, 31), seen);
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), row.low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 8), row.high);
}

// The row's bits go to the top of the word, then down again with their sign.
template <int kWidth, bool kAdd, size_t kRow, typename T>
RING_INLINE void UnpackRows(const uint8_t* in, const T* addends, T* block, Seen* seen) {
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
    StoreRow(row, kAdd ? addends + kLanes * kRow : nullptr, block + kLanes * kRow, seen);
    UnpackRows<kWidth, kAdd, kRow + 1>(in, addends, block, seen);
  }
}

template <int kWidth, typename T>
void UnpackAvx2(const uint8_t* in, T* block) {
  UnpackRows<kWidth, false, 0, T>(in, nullptr, block, nullptr);
}

template <int kWidth, typename T>
int UnpackSumAvx2(const uint8_t* in, const T* addends, T* sums) {
  Seen seen;
  UnpackRows<kWidth, true, 0, T>(in, addends, sums, &seen);
  return BitsOf(seen, T{});
}

template <typename T, size_t... kIndex>
constexpr IntegerKernels<T> TableOf(decltype(IntegerKernels<T>::dequantize) dequantize,
                                    decltype(IntegerKernels<T>::bits) bits,
                                    std::index_sequence<kIndex...>) {
  return {dequantize,
          bits,
          {nullptr, PackAvx2<2 * kIndex + 2, T>...},
          {nullptr, UnpackAvx2<2 * kIndex + 2, T>...},
          {nullptr, UnpackSumAvx2<2 * kIndex + 2, T>...}};
}

using Widths = std::make_index_sequence<kWidths - 1>;

constexpr Kernels kAvx2 = {"avx2",
                           QuantizeAddAvx2,
                           QuantizeAddNarrowAvx2,
                           LargestMagnitudeAvx2,
                           TableOf<int64_t>(DequantizeAvx2, BitsAvx2, Widths()),
                           TableOf<int32_t>(DequantizeNarrowAvx2, BitsNarrowAvx2, Widths())};

}  // namespace

const Kernels& Avx2Kernels() { return kAvx2; }

}  // namespace ringmaster::exact
