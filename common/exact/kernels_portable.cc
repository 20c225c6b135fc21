// The reference: integer arithmetic, one lane and one element at a time; and which of the kernels
// this processor runs.
#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "common/exact/kernels.h"

namespace ringmaster::exact {
namespace {

bool QuantizeAddPortable(const float* gradient, size_t count, Quantization quantization,
                         int64_t* sums) {
  bool refused = false;
  for (size_t i = 0; i < count; ++i) {
    if ((std::bit_cast<uint32_t>(gradient[i]) & kMagnitudeMask) >= quantization.limit) {
      refused = true;
      continue;
    }
    const auto q = static_cast<uint64_t>(RoundScaled(gradient[i], quantization.shift));
    sums[i] = static_cast<int64_t>(static_cast<uint64_t>(sums[i]) + q);
  }
  return refused;
}

template <typename T>
void DequantizePortable(const T* q, size_t count, float scale, float* out) {
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<float>(q[i]) * scale;
}

template <typename T>
int BitsPortable(const T* block, size_t count) {
  using Unsigned = std::make_unsigned_t<T>;
  constexpr int kBits = 8 * sizeof(T);
  Unsigned folded = 0;  // v or ~v, whichever is not negative
  Unsigned any = 0;
  for (size_t i = 0; i < count; ++i) {
    any |= static_cast<Unsigned>(block[i]);
    folded |= static_cast<Unsigned>(block[i] ^ (block[i] >> (kBits - 1)));
  }
  return any == 0 ? 0 : kBits + 1 - std::countl_zero(folded);
}

bool QuantizeAddNarrowPortable(const float* gradient, size_t count, Quantization quantization,
                               uint32_t limit, const int32_t* addends, int32_t* sums, int* bits) {
  for (size_t i = 0; i < count; ++i) {
    if ((std::bit_cast<uint32_t>(gradient[i]) & kMagnitudeMask) >= limit) return false;
  }
  for (size_t i = 0; i < count; ++i) {
    sums[i] = addends[i] + static_cast<int32_t>(RoundScaled(gradient[i], quantization.shift));
  }
  *bits = BitsPortable(sums, count);
  return true;
}

template <int kWidth, typename T>
void PackPortable(const T* block, uint8_t* out) {
  constexpr uint64_t kMask = (uint64_t{1} << kWidth) - 1;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    uint64_t stream = 0;
    int bits = 0;
    uint8_t* word = out + 4 * lane;
    for (size_t row = 0; row < kRows; ++row) {
      stream |= (static_cast<uint64_t>(block[kLanes * row + lane]) & kMask) << bits;
      for (bits += kWidth; bits >= 32; bits -= 32) {
        const auto low = static_cast<uint32_t>(stream);
        std::memcpy(word, &low, 4);
        word += 4 * kLanes;
        stream >>= 32;
      }
    }
  }
}

template <int kWidth, typename T>
void UnpackPortable(const uint8_t* in, T* block) {
  for (size_t lane = 0; lane < kLanes; ++lane) {
    uint64_t stream = 0;
    int bits = 0;
    const uint8_t* word = in + 4 * lane;
    for (size_t row = 0; row < kRows; ++row) {
      if (bits < kWidth) {
        uint32_t next;
        std::memcpy(&next, word, 4);
        word += 4 * kLanes;
        stream |= uint64_t{next} << bits;
        bits += 32;
      }
      block[kLanes * row + lane] =
          static_cast<T>(static_cast<int64_t>(stream << (64 - kWidth)) >> (64 - kWidth));
      stream >>= kWidth;
      bits -= kWidth;
    }
  }
}

template <int kWidth, typename T>
int UnpackSumPortable(const uint8_t* in, const T* addends, T* sums) {
  using Unsigned = std::make_unsigned_t<T>;
  T unpacked[kBlockElements];
  UnpackPortable<kWidth>(in, unpacked);
  for (size_t i = 0; i < kBlockElements; ++i) {
    sums[i] =
        static_cast<T>(static_cast<Unsigned>(addends[i]) + static_cast<Unsigned>(unpacked[i]));
  }
  return BitsPortable(sums, kBlockElements);
}

template <typename T, size_t... kIndex>
constexpr IntegerKernels<T> TableOf(std::index_sequence<kIndex...>) {
  return {DequantizePortable<T>,
          BitsPortable<T>,
          {nullptr, PackPortable<2 * kIndex + 2, T>...},
          {nullptr, UnpackPortable<2 * kIndex + 2, T>...},
          {nullptr, UnpackSumPortable<2 * kIndex + 2, T>...}};
}

using Widths = std::make_index_sequence<kWidths - 1>;

uint32_t LargestMagnitudePortable(const float* values, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & kMagnitudeMask);
  }
  return largest;
}

constexpr Kernels kPortable = {"portable",
                               QuantizeAddPortable,
                               QuantizeAddNarrowPortable,
                               LargestMagnitudePortable,
                               TableOf<int64_t>(Widths()),
                               TableOf<int32_t>(Widths())};

}  // namespace

const Kernels& PortableKernels() { return kPortable; }

const Kernels& BestKernels() {
  static const Kernels& best = Avx512Kernels() != nullptr ? *Avx512Kernels() : Avx2Kernels();
  return best;
}

}  // namespace ringmaster::exact
