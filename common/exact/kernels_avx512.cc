// AVX-512. Nothing here may run before Avx512Kernels() has asked the processor, so every function
// carries its target and no inline function of a header is called inside.
#if defined(__GNUC__) && !defined(__clang__)
// g++ 12 takes the deliberately undefined vectors inside its own intrinsics for mistakes of ours.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <utility>

#include "common/exact/kernels.h"

#define RING_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2")))
#define RING_AVX512_INLINE RING_AVX512 __attribute__((always_inline)) inline

namespace ringmaster::exact {
namespace {

RING_AVX512_INLINE void AddQuantized(__mmask8 lanes, __mmask8 accepted, __m256 scaled,
                                     int64_t* sums) {
  const __m512i q = _mm512_maskz_cvt_roundps_epi64(accepted, scaled,
                                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512i sum = _mm512_add_epi64(_mm512_maskz_loadu_epi64(lanes, sums), q);
  _mm512_mask_storeu_epi64(sums, lanes, sum);
}

RING_AVX512 bool QuantizeAddAvx512(const float* gradient, size_t count, Quantization quantization,
                                   int64_t* sums) {
  const __m512 shift = _mm512_set1_ps(static_cast<float>(quantization.shift));
  const __m512i limit = _mm512_set1_epi32(static_cast<int>(quantization.limit));
  const __m512i magnitude_mask = _mm512_set1_epi32(static_cast<int>(kMagnitudeMask));
  unsigned refused = 0;
  for (size_t i = 0; i < count; i += kLanes) {
    const unsigned lanes = count - i >= kLanes ? 0xffffU : (1U << (count - i)) - 1;
    const __m512 g = _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes), gradient + i);
    const __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(g), magnitude_mask);
    const unsigned over = _mm512_cmpge_epu32_mask(magnitude, limit);
    refused |= over;
    // Exact, but where the result is under 2^-126 and rounds to 0 anyway.
    const __m512 scaled = _mm512_scalef_ps(g, shift);
    const unsigned accepted = ~over;
    AddQuantized(static_cast<__mmask8>(lanes), static_cast<__mmask8>(accepted),
                 _mm512_castps512_ps256(scaled), sums + i);
    AddQuantized(static_cast<__mmask8>(lanes >> 8), static_cast<__mmask8>(accepted >> 8),
                 _mm512_extractf32x8_ps(scaled, 1), sums + i + 8);
  }
  return refused != 0;
}

RING_AVX512 void DequantizeAvx512(const int64_t* q, size_t count, float scale, float* out) {
  const __m256 scales = _mm256_set1_ps(scale);
  for (size_t i = 0; i < count; i += 8) {
    const unsigned bits = count - i >= 8 ? 0xffU : (1U << (count - i)) - 1;
    const auto lanes = static_cast<__mmask8>(bits);
    const __m256 rounded = _mm512_cvtepi64_ps(_mm512_maskz_loadu_epi64(lanes, q + i));
    _mm256_mask_storeu_ps(out + i, lanes, _mm256_mul_ps(rounded, scales));
  }
}

RING_AVX512 int BitsAvx512(const int64_t* block, size_t count) {
  __m512i folded = _mm512_setzero_si512();
  __m512i any = _mm512_setzero_si512();
  for (size_t i = 0; i < count; i += 8) {
    const unsigned bits = count - i >= 8 ? 0xffU : (1U << (count - i)) - 1;
    const __m512i v = _mm512_maskz_loadu_epi64(static_cast<__mmask8>(bits), block + i);
    any = _mm512_or_si512(any, v);
    // folded | (v ^ (v >> 63))
    folded = _mm512_ternarylogic_epi64(folded, v, _mm512_srai_epi64(v, 63), 0xf6);
  }
  if (_mm512_test_epi64_mask(any, any) == 0) return 0;
  const auto magnitude = static_cast<uint64_t>(_mm512_reduce_or_epi64(folded));
  return magnitude == 0 ? 1 : 65 - __builtin_clzll(magnitude);
}

RING_AVX512_INLINE __mmask16 LanesOf(size_t count) {
  return static_cast<__mmask16>(count >= kLanes ? 0xffffU : (1U << count) - 1);
}

// folded | (v ^ (v >> 31))
RING_AVX512_INLINE __m512i Fold(__m512i folded, __m512i v) {
  return _mm512_ternarylogic_epi32(folded, v, _mm512_srai_epi32(v, 31), 0xf6);
}

RING_AVX512_INLINE int BitsOfFolded(__m512i folded) {
  const auto magnitude = static_cast<uint32_t>(_mm512_reduce_or_epi32(folded));
  return magnitude == 0 ? 1 : 33 - __builtin_clz(magnitude);
}

// What the bits of sums are computed from: all of them, and each folded to one that is not
// negative.
struct Seen {
  __m512i any;
  __m512i folded;
};

RING_AVX512_INLINE int BitsOf(const Seen& seen, int64_t) {
  if (_mm512_test_epi64_mask(seen.any, seen.any) == 0) return 0;
  const auto magnitude = static_cast<uint64_t>(_mm512_reduce_or_epi64(seen.folded));
  return magnitude == 0 ? 1 : 65 - __builtin_clzll(magnitude);
}

RING_AVX512_INLINE int BitsOf(const Seen& seen, int32_t) {
  return _mm512_test_epi32_mask(seen.any, seen.any) == 0 ? 0 : BitsOfFolded(seen.folded);
}

// The lanes at `at` of a block: all of them in a whole one, which takes no masks.
template <bool kWhole>
RING_AVX512_INLINE __m512 LoadFloats(const float* at, size_t left) {
  return kWhole ? _mm512_loadu_ps(at) : _mm512_maskz_loadu_ps(LanesOf(left), at);
}

template <bool kWhole>
RING_AVX512_INLINE __m512i LoadSums(const int32_t* at, size_t left) {
  return kWhole ? _mm512_loadu_si512(at) : _mm512_maskz_loadu_epi32(LanesOf(left), at);
}

template <bool kWhole>
RING_AVX512_INLINE void StoreSums(__m512i sums, int32_t* at, size_t left) {
  if constexpr (kWhole) {
    _mm512_storeu_si512(at, sums);
  } else {
    _mm512_mask_storeu_epi32(at, LanesOf(left), sums);
  }
}

// 2^shift is a normal float32 (NarrowLimit): a product with it is exact, or under 2^-126 and rounds
// to 0 anyway.
template <bool kWhole>
RING_AVX512_INLINE int AddNarrow(const float* gradient, size_t count, int shift,
                                 const int32_t* addends, int32_t* sums) {
  const __m512 factor = _mm512_castsi512_ps(_mm512_set1_epi32((shift + 127) << 23));
  Seen seen{_mm512_setzero_si512(), _mm512_setzero_si512()};
  for (size_t i = 0; i < count; i += kLanes) {
    const __m512 scaled = _mm512_mul_ps(LoadFloats<kWhole>(gradient + i, count - i), factor);
    const __m512i sum = _mm512_add_epi32(
        LoadSums<kWhole>(addends + i, count - i),
        _mm512_cvt_roundps_epi32(scaled, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    StoreSums<kWhole>(sum, sums + i, count - i);
    seen.any = _mm512_or_si512(seen.any, sum);
    seen.folded = Fold(seen.folded, sum);
  }
  return BitsOf(seen, int32_t{});
}

template <bool kWhole>
RING_AVX512_INLINE __m512i LargestMagnitude(const float* gradient, size_t count) {
  const __m512i magnitude_mask = _mm512_set1_epi32(static_cast<int>(kMagnitudeMask));
  __m512i largest = _mm512_setzero_si512();
  for (size_t i = 0; i < count; i += kLanes) {
    const __m512 g = LoadFloats<kWhole>(gradient + i, count - i);
    largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_castps_si512(g), magnitude_mask));
  }
  return largest;
}

RING_AVX512 bool QuantizeAddNarrowAvx512(const float* gradient, size_t count,
                                         Quantization quantization, uint32_t limit,
                                         const int32_t* addends, int32_t* sums, int* bits) {
  const bool whole = count == kBlockElements;
  const __m512i largest = whole ? LargestMagnitude<true>(gradient, kBlockElements)
                                : LargestMagnitude<false>(gradient, count);
  if (_mm512_cmpge_epu32_mask(largest, _mm512_set1_epi32(static_cast<int>(limit))) != 0) {
    return false;
  }
  *bits = whole ? AddNarrow<true>(gradient, kBlockElements, quantization.shift, addends, sums)
                : AddNarrow<false>(gradient, count, quantization.shift, addends, sums);
  return true;
}

RING_AVX512 void DequantizeNarrowAvx512(const int32_t* q, size_t count, float scale, float* out) {
  const __m512 scales = _mm512_set1_ps(scale);
  for (size_t i = 0; i < count; i += kLanes) {
    const __mmask16 lanes = LanesOf(count - i);
    const __m512 rounded = _mm512_cvtepi32_ps(_mm512_maskz_loadu_epi32(lanes, q + i));
    _mm512_mask_storeu_ps(out + i, lanes, _mm512_mul_ps(rounded, scales));
  }
}

template <bool kWhole>
RING_AVX512_INLINE int BitsNarrow(const int32_t* block, size_t count) {
  Seen seen{_mm512_setzero_si512(), _mm512_setzero_si512()};
  for (size_t i = 0; i < count; i += kLanes) {
    const __m512i v = LoadSums<kWhole>(block + i, count - i);
    seen.any = _mm512_or_si512(seen.any, v);
    seen.folded = Fold(seen.folded, v);
  }
  return BitsOf(seen, int32_t{});
}

RING_AVX512 int BitsNarrowAvx512(const int32_t* block, size_t count) {
  return count == kBlockElements ? BitsNarrow<true>(block, kBlockElements)
                                 : BitsNarrow<false>(block, count);
}

RING_AVX512_INLINE __m512i LoadRow(const int32_t* block, size_t row) {
  return _mm512_loadu_si512(block + kLanes * row);
}

RING_AVX512_INLINE __m512i LoadRow(const int64_t* block, size_t row) {
  const int64_t* first = block + kLanes * row;
  const __m256i low = _mm512_cvtepi64_epi32(_mm512_loadu_si512(first));
  const __m256i high = _mm512_cvtepi64_epi32(_mm512_loadu_si512(first + 8));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// A row enters the word at its top and moves down: after 32 bits the word is full, and what a row
// has left enters the next one.
template <int kWidth, size_t kRow, typename T>
RING_AVX512_INLINE void PackRows(const T* block, __m512i word, uint8_t* out) {
  if constexpr (kRow < kRows) {
    constexpr int kUsed = static_cast<int>(kRow) * kWidth % 32;
    constexpr size_t kWord = kRow * kWidth / 32;
    const __m512i row = LoadRow(block, kRow);
    if constexpr (kUsed + kWidth < 32) {
      PackRows<kWidth, kRow + 1>(block, _mm512_shrdi_epi32(word, row, kWidth), out);
    } else {
      if constexpr (kWidth < 32) word = _mm512_shrdi_epi32(word, row, 32 - kUsed);
      if constexpr (kWidth == 32) word = row;
      _mm512_storeu_si512(out + 64 * kWord, word);
      PackRows<kWidth, kRow + 1>(block, _mm512_slli_epi32(row, 32 - kWidth), out);
    }
  }
}

template <int kWidth, typename T>
RING_AVX512 void PackAvx512(const T* block, uint8_t* out) {
  PackRows<kWidth, 0>(block, _mm512_setzero_si512(), out);
}

// Where there are no addends (a constant where this is inlined) the row alone, and nothing is seen.
RING_AVX512_INLINE void StoreHalf(__m512i half, const int64_t* addends, int64_t* to, Seen* seen) {
  if (addends != nullptr) {
    half = _mm512_add_epi64(half, _mm512_loadu_si512(addends));
    seen->any = _mm512_or_si512(seen->any, half);
    seen->folded = _mm512_ternarylogic_epi64(seen->folded, half, _mm512_srai_epi64(half, 63), 0xf6);
  }
  _mm512_storeu_si512(to, half);
}

RING_AVX512_INLINE void StoreRow(__m512i row, const int64_t* addends, int64_t* to, Seen* seen) {
  StoreHalf(_mm512_cvtepi32_epi64(_mm512_castsi512_si256(row)), addends, to, seen);
  StoreHalf(_mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(row, 1)),
            addends == nullptr ? nullptr : addends + 8, to + 8, seen);
}

RING_AVX512_INLINE void StoreRow(__m512i row, const int32_t* addends, int32_t* to, Seen* seen) {
  if (addends != nullptr) {
    row = _mm512_add_epi32(row, _mm512_loadu_si512(addends));
    seen->any = _mm512_or_si512(seen->any, row);
    seen->folded = Fold(seen->folded, row);
  }
  _mm512_storeu_si512(to, row);
}

// The row's bits go to the top of the word, then down again with their sign.
template <int kWidth, bool kAdd, size_t kRow, typename T>
RING_AVX512_INLINE void UnpackRows(const uint8_t* in, const T* addends, T* block, Seen* seen) {
  if constexpr (kRow < kRows) {
    constexpr int kUsed = static_cast<int>(kRow) * kWidth % 32;
    const uint8_t* at = in + 64 * (kRow * kWidth / 32);
    __m512i row = _mm512_loadu_si512(at);
    if constexpr (kUsed + kWidth < 32) {
      row = _mm512_slli_epi32(row, 32 - kUsed - kWidth);
    } else if constexpr (kUsed + kWidth > 32) {
      row = _mm512_shldi_epi32(_mm512_loadu_si512(at + 64), row, 64 - kUsed - kWidth);
    }
    StoreRow(_mm512_srai_epi32(row, 32 - kWidth), kAdd ? addends + kLanes * kRow : nullptr,
             block + kLanes * kRow, seen);
    UnpackRows<kWidth, kAdd, kRow + 1>(in, addends, block, seen);
  }
}

template <int kWidth, typename T>
RING_AVX512 void UnpackAvx512(const uint8_t* in, T* block) {
  UnpackRows<kWidth, false, 0, T>(in, nullptr, block, nullptr);
}

template <int kWidth, typename T>
RING_AVX512 int UnpackSumAvx512(const uint8_t* in, const T* addends, T* sums) {
  Seen seen{_mm512_setzero_si512(), _mm512_setzero_si512()};
  UnpackRows<kWidth, true, 0, T>(in, addends, sums, &seen);
  return BitsOf(seen, T{});
}

template <typename T, size_t... kIndex>
constexpr IntegerKernels<T> TableOf(decltype(IntegerKernels<T>::dequantize) dequantize,
                                    decltype(IntegerKernels<T>::bits) bits,
                                    std::index_sequence<kIndex...>) {
  return {dequantize,
          bits,
          {nullptr, PackAvx512<2 * kIndex + 2, T>...},
          {nullptr, UnpackAvx512<2 * kIndex + 2, T>...},
          {nullptr, UnpackSumAvx512<2 * kIndex + 2, T>...}};
}

using Widths = std::make_index_sequence<kWidths - 1>;

RING_AVX512 uint32_t LargestMagnitudeAvx512(const float* values, size_t count) {
  return _mm512_reduce_max_epu32(count == kBlockElements
                                     ? LargestMagnitude<true>(values, kBlockElements)
                                     : LargestMagnitude<false>(values, count));
}

constexpr Kernels kAvx512 = {"avx512",
                             QuantizeAddAvx512,
                             QuantizeAddNarrowAvx512,
                             LargestMagnitudeAvx512,
                             TableOf<int64_t>(DequantizeAvx512, BitsAvx512, Widths()),
                             TableOf<int32_t>(DequantizeNarrowAvx512, BitsNarrowAvx512, Widths())};

}  // namespace

const Kernels* Avx512Kernels() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512vbmi2");
  return has ? &kAvx512 : nullptr;
}

}  // namespace ringmaster::exact
