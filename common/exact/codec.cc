#include "common/exact/codec.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "common/check.h"
#include "common/exact/arithmetic.h"
#include "common/exact/kernels.h"
#include "common/exact/quantize.h"

namespace ringmaster::exact {
namespace {

template <typename T>
using WholeBlock = std::array<T, kBlockElements>;

template <typename T>
const IntegerKernels<T>& Of(const Kernels& kernels) {
  if constexpr (std::is_same_v<T, int64_t>) {
    return kernels.wide;
  } else {
    return kernels.narrow;
  }
}

// A plane of a short block is the beginning of the plane of the block filled up with zeros.
template <typename T>
void PackPlane(const IntegerKernels<T>& kernels, const WholeBlock<T>& block, int width, size_t rows,
               uint8_t* out) {
  std::array<uint8_t, kBlockElements * 4> whole;
  kernels.pack[width / 2](block.data(), whole.data());
  std::memcpy(out, whole.data(), PlaneBytes(width, rows));
}

template <typename T>
void UnpackPlane(const IntegerKernels<T>& kernels, const uint8_t* in, int width, size_t rows,
                 WholeBlock<T>* block) {
  std::array<uint8_t, kBlockElements * 4> whole{};
  std::memcpy(whole.data(), in, PlaneBytes(width, rows));
  kernels.unpack[width / 2](whole.data(), block->data());
}

// Short or wide blocks, by way of a whole block. Of a wide one, int32 elements get the low halves.
template <typename T>
void UnpackAny(const IntegerKernels<T>& kernels, const uint8_t* in, int width, size_t count,
               WholeBlock<T>* block) {
  const size_t rows = RowsOf(count);
  UnpackPlane(kernels, in, LowWidth(width), rows, block);
  if constexpr (std::is_same_v<T, int64_t>) {
    if (width <= 32) return;
    WholeBlock<T> high;
    UnpackPlane(kernels, in + PlaneBytes(32, rows), width - 32, rows, &high);
    for (size_t i = 0; i < kBlockElements; ++i) {
      (*block)[i] = static_cast<int64_t>(static_cast<uint64_t>(high[i]) << 32 |
                                         static_cast<uint32_t>((*block)[i]));
    }
  }
}

int EvenWidth(int bits) { return (bits + 1) & ~1; }

void CheckArguments(int width, size_t count) {
  RING_CHECK(ValidWidth(width), "a packed width is even, 0 to 64");
  RING_CHECK(count <= kBlockElements, "a block has at most 256 elements");
}

template <typename T>
void PackAs(const Kernels& all, std::span<const T> block, int width, uint8_t* out) {
  CheckArguments(width, block.size());
  const IntegerKernels<T>& kernels = Of<T>(all);
  if (width == 0) return;
  if (width <= 32 && block.size() == kBlockElements) {
    kernels.pack[width / 2](block.data(), out);
    return;
  }
  const size_t rows = RowsOf(block.size());
  WholeBlock<T> whole{};
  std::copy(block.begin(), block.end(), whole.begin());
  PackPlane(kernels, whole, LowWidth(width), rows, out);
  if (width <= 32) return;
  constexpr int kUpper = std::min<int>(32, 8 * sizeof(T) - 1);
  for (T& element : whole) element >>= kUpper;
  PackPlane(kernels, whole, width - 32, rows, out + PlaneBytes(32, rows));
}

template <typename T>
void UnpackAs(const Kernels& all, const uint8_t* in, int width, std::span<T> block) {
  CheckArguments(width, block.size());
  const IntegerKernels<T>& kernels = Of<T>(all);
  if (width == 0) {
    std::fill(block.begin(), block.end(), 0);
  } else if (width <= 32 && block.size() == kBlockElements) {
    kernels.unpack[width / 2](in, block.data());
  } else {
    WholeBlock<T> whole;
    UnpackAny(kernels, in, width, block.size(), &whole);
    std::copy_n(whole.begin(), block.size(), block.begin());
  }
}

template <typename T>
int UnpackSumAs(const Kernels& all, const uint8_t* in, int width, std::span<const T> addends,
                T* sums) {
  CheckArguments(width, addends.size());
  const IntegerKernels<T>& kernels = Of<T>(all);
  if (width > 0 && width <= 32 && addends.size() == kBlockElements) {
    return EvenWidth(kernels.unpack_sum[width / 2](in, addends.data(), sums));
  }
  WholeBlock<T> whole{};
  if (width > 0) UnpackAny(kernels, in, width, addends.size(), &whole);
  std::transform(addends.begin(), addends.end(), whole.begin(), sums,
                 [](T a, T b) { return static_cast<T>(WrappingAdd(a, b)); });
  return EvenWidth(kernels.bits(sums, addends.size()));
}

}  // namespace

int Width(const Kernels& kernels, std::span<const int64_t> block) {
  return EvenWidth(kernels.wide.bits(block.data(), block.size()));
}

void Pack(const Kernels& kernels, std::span<const int64_t> block, int width, uint8_t* out) {
  PackAs(kernels, block, width, out);
}

void Unpack(const Kernels& kernels, const uint8_t* in, int width, std::span<int64_t> block) {
  UnpackAs(kernels, in, width, block);
}

int UnpackSum(const Kernels& kernels, const uint8_t* in, int width,
              std::span<const int64_t> addends, int64_t* sums) {
  return UnpackSumAs(kernels, in, width, addends, sums);
}

int Width(const Kernels& kernels, std::span<const int32_t> block) {
  return EvenWidth(kernels.narrow.bits(block.data(), block.size()));
}

void Pack(const Kernels& kernels, std::span<const int32_t> block, int width, uint8_t* out) {
  PackAs(kernels, block, width, out);
}

void Unpack(const Kernels& kernels, const uint8_t* in, int width, std::span<int32_t> block) {
  UnpackAs(kernels, in, width, block);
}

int UnpackSum(const Kernels& kernels, const uint8_t* in, int width,
              std::span<const int32_t> addends, int32_t* sums) {
  return UnpackSumAs(kernels, in, width, addends, sums);
}

int Width(std::span<const int64_t> block) { return Width(BestKernels(), block); }

void Pack(std::span<const int64_t> block, int width, uint8_t* out) {
  Pack(BestKernels(), block, width, out);
}

void Unpack(const uint8_t* in, int width, std::span<int64_t> block) {
  Unpack(BestKernels(), in, width, block);
}

}  // namespace ringmaster::exact
