// One optimizer update of codec blocks that follow each other: the integers of the sum become the
// reduced gradient, which updates parameters and slots and is not kept. The bits of
// exact::Dequantize and graph::Optimizer::Apply; a NaN stays one, though not its payload.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace ringmaster::cuda {

// Device memory in arena layout: 256 elements a block, padding zero, as it stays.
struct UpdateArrays {
  static constexpr int kMaxSlots = 2;

  const int64_t* totals = nullptr;
  const uint32_t* counts = nullptr;  // elements, by block
  // By block: E, then exact::ExponentOf the reduced gradient's largest magnitude, of which
  // LaunchClampExponents makes the next E.
  int16_t* exponents = nullptr;
  float* parameters = nullptr;
  float* slots[kMaxSlots] = {};       // as many as the formula has
  __nv_bfloat16* bfloat16 = nullptr;  // copies of the parameters, rounded half to even; nullptr
  __half* float16 = nullptr;          // where there is none
};

// Formula: one of common/graph/update/formulas.h. Changes blocks [first_block, first_block +
// blocks) and nothing else.
template <typename Formula>
cudaError_t LaunchUpdate(const Formula& formula, const UpdateArrays& arrays, int64_t first_block,
                         int64_t blocks, int precision_bits, cudaStream_t stream);

}  // namespace ringmaster::cuda
