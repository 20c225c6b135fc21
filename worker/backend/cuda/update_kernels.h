// One optimizer update of codec blocks that follow each other: the integers of the sum become the
// reduced gradient, which updates parameters and slots and is not kept. The bits of
// exact::Dequantize and graph::UpdateRange; a NaN stays one, though not its payload.
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

// Changes blocks [first_block, first_block + blocks), of tensors with this step, and nothing else.
cudaError_t LaunchUpdate(const graph::TensorStep& step, const UpdateArrays& arrays,
                         int64_t first_block, int64_t blocks, int precision_bits,
                         cudaStream_t stream);

}  // namespace ringmaster::cuda
