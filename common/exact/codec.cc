#include "common/exact/codec.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/check.h"
#include "common/exact/arithmetic.h"
#include "common/exact/kernels.h"
#include "common/exact/quantize.h"

namespace ringmaster::exact {
namespace {

using WholeBlock = std::array<int64_t, kBlockElements>;

// A plane of a short block is the beginning of the plane of the block filled up with zeros.
void PackPlane(const Kernels& kernels, const WholeBlock& block, int width, size_t rows,
               uint8_t* out) {
  std::array<uint8_t, kBlockElements * 4> whole;
  kernels.pack[width / 2](block.data(), whole.data());
  std::memcpy(out, whole.data(), PlaneBytes(width, rows));
}

void UnpackPlane(const Kernels& kernels, const uint8_t* in, int width, size_t rows,
                 WholeBlock* block) {
  std::array<uint8_t, kBlockElements * 4> whole{};
  std::memcpy(whole.data(), in, PlaneBytes(width, rows));
  kernels.unpack[width / 2](whole.data(), block->data());
}

// Short or wide blocks, by way of a whole block.
void UnpackAny(const Kernels& kernels, const uint8_t* in, int width, size_t count,
               WholeBlock* block) {
  const size_t rows = RowsOf(count);
  if (width <= 32) {
    UnpackPlane(kernels, in, width, rows, block);
    return;
  }
  WholeBlock high;
  UnpackPlane(kernels, in + PlaneBytes(32, rows), width - 32, rows, &high);
  UnpackPlane(kernels, in, 32, rows, block);
  for (size_t i = 0; i < kBlockElements; ++i) {
    (*block)[i] = static_cast<int64_t>(static_cast<uint64_t>(high[i]) << 32 |
                                       static_cast<uint32_t>((*block)[i]));
  }
}

void CheckArguments(int width, size_t count) {
  RING_CHECK(ValidWidth(width), "a packed width is even, 0 to 64");
  RING_CHECK(count <= kBlockElements, "a block has at most 256 elements");
}

}  // namespace

int Width(const Kernels& kernels, std::span<const int64_t> block) {
  return (kernels.bits(block.data(), block.size()) + 1) & ~1;
}

void Pack(const Kernels& kernels, std::span<const int64_t> block, int width, uint8_t* out) {
  CheckArguments(width, block.size());
  if (width == 0) return;
  if (width <= 32 && block.size() == kBlockElements) {
    kernels.pack[width / 2](block.data(), out);
    return;
  }
  const size_t rows = RowsOf(block.size());
  WholeBlock whole{};
  std::copy(block.begin(), block.end(), whole.begin());
  PackPlane(kernels, whole, LowWidth(width), rows, out);
  if (width <= 32) return;
  for (int64_t& element : whole) element >>= 32;
  PackPlane(kernels, whole, width - 32, rows, out + PlaneBytes(32, rows));
}

void Unpack(const Kernels& kernels, const uint8_t* in, int width, std::span<int64_t> block) {
  CheckArguments(width, block.size());
  if (width == 0) {
    std::fill(block.begin(), block.end(), 0);
  } else if (width <= 32 && block.size() == kBlockElements) {
    kernels.unpack[width / 2](in, block.data());
  } else {
    WholeBlock whole;
    UnpackAny(kernels, in, width, block.size(), &whole);
    std::copy_n(whole.begin(), block.size(), block.begin());
  }
}

void UnpackAdd(const Kernels& kernels, const uint8_t* in, int width, std::span<int64_t> block) {
  CheckArguments(width, block.size());
  if (width == 0) return;
  if (width <= 32 && block.size() == kBlockElements) {
    kernels.unpack_add[width / 2](in, block.data());
    return;
  }
  WholeBlock whole;
  UnpackAny(kernels, in, width, block.size(), &whole);
  std::transform(block.begin(), block.end(), whole.begin(), block.begin(), WrappingAdd);
}

size_t PackedBytes(int width, size_t count) {
  CheckArguments(width, count);
  const size_t rows = RowsOf(count);
  return PlaneBytes(LowWidth(width), rows) + PlaneBytes(HighWidth(width), rows);
}

int Width(std::span<const int64_t> block) { return Width(BestKernels(), block); }

void Pack(std::span<const int64_t> block, int width, uint8_t* out) {
  Pack(BestKernels(), block, width, out);
}

void Unpack(const uint8_t* in, int width, std::span<int64_t> block) {
  Unpack(BestKernels(), in, width, block);
}

void UnpackAdd(const uint8_t* in, int width, std::span<int64_t> block) {
  UnpackAdd(BestKernels(), in, width, block);
}

}  // namespace ringmaster::exact
