// What the state of a job does on its GPU: gradients become integers and are added up, buckets are
// packed, sums are hashed, and the totals update the parameters. All pointers are to device memory.
// Launchers enqueue and wait for nothing; each returns what cudaGetLastError says. Where there
// are no blocks nothing is done, and sums are 0.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/exact/quantize.h"
#include "common/graph/update/rule_list.h"
#include "common/numeric/host_device.h"

namespace ringmaster::cuda {

// Sums of quantized gradients, and the packing of a bucket's sums: the bits and bytes of
// common/exact's quantize.h and codec.h. All in arena layout: 256 elements a block, of which a
// tensor's last block may have fewer; padding is neither read nor written.

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
  int64_t blocks;
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

// Sums of hashes of blocks: the bits of common/exact/digest.h and word_hash.h (digest.cu).

// One entry a block, as in exact::Block.
struct BlockNames {
  const uint32_t* tensors;
  const uint32_t* indices;
  const uint32_t* counts;
};

// sum[0], sum[1] = lower and upper 64 bits of the sum of the hashes of `blocks` blocks, 256
// integers a block; what exact::BlockSum::OfHalves takes. Scratch: DigestScratch bytes, a function
// of the number of blocks alone.
size_t DigestScratch(int64_t blocks);
cudaError_t LaunchDigest(const BlockNames& names, const int64_t* integers, int64_t blocks,
                         uint64_t* scratch, uint64_t* sum, cudaStream_t stream);

// Likewise of float32 values as words (common/exact/word_hash.h), under the names `name` + tensor;
// *finite becomes 0 when one of them is not finite, and stays what it is else.
cudaError_t LaunchWordHash(const BlockNames& names, uint32_t name, const float* values,
                           int64_t blocks, uint64_t* scratch, uint64_t* sum, uint64_t* finite,
                           cudaStream_t stream);
// Of one exponent a block: what exact::Units::Hash gives. Blocks of a tensor follow each other.
cudaError_t LaunchExponentHash(const BlockNames& names, const int16_t* exponents, int64_t blocks,
                               uint64_t* scratch, uint64_t* sum, cudaStream_t stream);

// One optimizer update of some codec blocks: the integers of the sum become the reduced gradient,
// which updates parameters and slots and is not kept. The bits of exact::Dequantize and
// graph::UpdateRange; a NaN stays one, though not its payload.

// Device memory in arena layout: 256 elements a block, padding zero, as it stays.
struct UpdateArrays {
  static constexpr int kMaxSlots = graph::Rules::kMaxSlots;

  const int64_t* totals = nullptr;
  const uint32_t* counts = nullptr;  // elements, by block
  // By block: E, then exact::ExponentOf the reduced gradient's largest magnitude, of which
  // LaunchClampExponents makes the next E.
  int16_t* exponents = nullptr;
  float* parameters = nullptr;
  float* slots[kMaxSlots] = {};       // as many as the rule has
  float* average = nullptr;           // of the parameters, where the job has one
  __nv_bfloat16* bfloat16 = nullptr;  // copies of the parameters, rounded half to even; nullptr
  __half* float16 = nullptr;          // where there is none

  // By canonical number, where norms scale steps (norms.h), and of each block its tensor's number.
  const graph::NormFactors* factors = nullptr;
  const uint32_t* tensors = nullptr;
};

// Numbers of blocks, each once; device memory.
struct BlockList {
  const uint32_t* blocks;
  int64_t count;
};

// Changes those blocks, of tensors with this step but for their norms, and nothing else.
cudaError_t LaunchUpdate(const graph::TensorStep& step, const UpdateArrays& arrays,
                         const BlockList& list, int precision_bits, cudaStream_t stream);

// The exponents of the next step: the bits of common/exact/units.h.

// Tensor t of the arena has blocks first_blocks[t] to first_blocks[t + 1].
struct TensorBlocks {
  int64_t count;                 // of tensors
  const uint32_t* first_blocks;  // count + 1 of them
};

// exact::Units::Advance, from the exponents of each block's largest magnitude, which the update
// writes, to E: not lower than the tensor's largest minus 12, then clamped.
cudaError_t LaunchClampExponents(const TensorBlocks& tensors, int precision_bits,
                                 int16_t* exponents, cudaStream_t stream);

// exact::Units::Reset.
cudaError_t LaunchResetExponents(int64_t blocks, int precision_bits, int16_t* exponents,
                                 cudaStream_t stream);

}  // namespace ringmaster::cuda
