// One optimizer update of some codec blocks: the integers of the sum become the reduced gradient,
// which updates parameters and slots and is not kept. The bits of exact::Dequantize and
// graph::UpdateRange; a NaN stays one, though not its payload.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/graph/update/rule_list.h"

namespace ringmaster::cuda {

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
};

// Numbers of blocks, each once; device memory.
struct BlockList {
  const uint32_t* blocks;
  int64_t count;
};

// Changes those blocks, of tensors with this step, and nothing else.
cudaError_t LaunchUpdate(const graph::TensorStep& step, const UpdateArrays& arrays,
                         const BlockList& list, int precision_bits, cudaStream_t stream);

// The exponents of the next step on the GPU: the bits of common/exact/units.h. All pointers are to
// device memory. Launchers enqueue and wait for nothing; each returns what cudaGetLastError says.

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
