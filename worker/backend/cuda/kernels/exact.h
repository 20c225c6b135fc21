// Sums of quantized gradients on the GPU, and the packing of a bucket's sums: the bits and bytes of
// common/exact's quantize.h and codec.h. All pointers are to device memory, in arena layout: 256
// elements a block, of which a tensor's last block may have fewer; padding is neither read nor
// written. Launchers enqueue and wait for nothing; each returns what cudaGetLastError says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>

#include "common/exact/quantize.h"
#include "common/host_device.h"

namespace ringmaster::cuda {

// From integers back to float32, with the bits of common/exact. For kernels and for host code;
// thread-safe (free functions).

// 2^(exponent - precision_bits), the unit of a block: a normal float32, since it is 2^-40 to 2^119.
RING_HOST_DEVICE inline float UnitOf(int exponent, int precision_bits) {
  const auto bits = static_cast<uint32_t>(exponent - precision_bits + 127) << 23;
  float unit;
  memcpy(&unit, &bits, sizeof(unit));
  return unit;
}

// What exact::Dequantize makes of one element: rounded once, half to even, then scaled exactly.
RING_HOST_DEVICE inline float Dequantize(int64_t q, float unit) {
  return static_cast<float>(q) * unit;
}

// How the gradient of one tensor becomes integers.
struct TensorQuantization {
  const int16_t* exponents;     // E of each of its blocks
  int precision_bits;           // B
  const float* gradient_scale;  // one number, 1/S: a power of two from 2^-126 to 2^64
  uint32_t shards;              // V
};

// exact::QuantizeAdd of a whole tensor; several may add to the same sums at the same time. `flag`
// is lowered to the first refused value's element * 4 + kind; before the first launch it is
// kNothingRefused.
cudaError_t LaunchQuantizeAdd(const float* gradient, int64_t elements,
                              const TensorQuantization& quantization, int64_t* sums, uint64_t* flag,
                              cudaStream_t stream);

inline constexpr uint64_t kNothingRefused = ~uint64_t{0};
[[nodiscard]] constexpr exact::FlagKind RefusedKind(uint64_t flag) {
  return flag == kNothingRefused ? exact::FlagKind::kNone : static_cast<exact::FlagKind>(flag & 3);
}

// Consecutive blocks and where each lies packed.
struct PackedBlocks {
  int64_t blocks;           // >= 1
  const uint32_t* counts;   // elements of each block, 1 to 256
  const uint8_t* widths;    // of each block; even, 0 to 64
  const uint64_t* offsets;  // bytes, of each block; multiples of 64
};

// widths[b] = exact::Width of block b.
cudaError_t LaunchWidths(const int64_t* integers, const uint32_t* counts, int64_t blocks,
                         uint8_t* widths, cudaStream_t stream);

// offsets[b] = bytes of the packed blocks before b; offsets[blocks] those of all.
cudaError_t LaunchOffsets(const uint8_t* widths, const uint32_t* counts, int64_t blocks,
                          uint64_t* offsets, cudaStream_t stream);

// What exact::Pack and Unpack do with each block. `bytes` lie at a multiple of 4.
cudaError_t LaunchPack(const PackedBlocks& packed, const int64_t* integers, uint8_t* bytes,
                       cudaStream_t stream);
cudaError_t LaunchUnpack(const PackedBlocks& packed, const uint8_t* bytes, int64_t* integers,
                         cudaStream_t stream);

}  // namespace ringmaster::cuda
