// The reference: integer arithmetic, one lane and one element at a time.
#include <bit>
#include <cstring>
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

void DequantizePortable(const int64_t* q, size_t count, float scale, float* out) {
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<float>(q[i]) * scale;
}

int BitsPortable(const int64_t* block, size_t count) {
  uint64_t folded = 0;  // v or ~v, whichever is not negative
  uint64_t any = 0;
  for (size_t i = 0; i < count; ++i) {
    any |= static_cast<uint64_t>(block[i]);
    folded |= static_cast<uint64_t>(block[i] ^ (block[i] >> 63));
  }
  return any == 0 ? 0 : 65 - std::countl_zero(folded);
}

template <int kWidth>
void PackPortable(const int64_t* block, uint8_t* out) {
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

template <int kWidth>
void UnpackPortable(const uint8_t* in, int64_t* block) {
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
      block[kLanes * row + lane] = static_cast<int64_t>(stream << (64 - kWidth)) >> (64 - kWidth);
      stream >>= kWidth;
      bits -= kWidth;
    }
  }
}

template <int kWidth>
void UnpackAddPortable(const uint8_t* in, int64_t* block) {
  int64_t unpacked[kBlockElements];
  UnpackPortable<kWidth>(in, unpacked);
  for (size_t i = 0; i < kBlockElements; ++i) {
    block[i] =
        static_cast<int64_t>(static_cast<uint64_t>(block[i]) + static_cast<uint64_t>(unpacked[i]));
  }
}

template <size_t... kIndex>
constexpr Kernels Table(std::index_sequence<kIndex...>) {
  return {"portable",
          QuantizeAddPortable,
          DequantizePortable,
          BitsPortable,
          {nullptr, PackPortable<2 * kIndex + 2>...},
          {nullptr, UnpackPortable<2 * kIndex + 2>...},
          {nullptr, UnpackAddPortable<2 * kIndex + 2>...}};
}

constexpr Kernels kPortable = Table(std::make_index_sequence<kWidths - 1>());

}  // namespace

const Kernels& PortableKernels() { return kPortable; }

}  // namespace ringmaster::exact
