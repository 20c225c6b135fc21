// The exponents of the next step on the GPU: the bits of common/exact/units.h. All pointers are to
// device memory. Launchers enqueue and wait for nothing; each returns what cudaGetLastError says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ringmaster::cuda {

// Tensor t of the arena has blocks first_blocks[t] to first_blocks[t + 1].
struct TensorBlocks {
  int64_t count;                 // of tensors
  const uint32_t* first_blocks;  // count + 1 of them
};

// exact::Units::Advance, from the exponents of each block's largest magnitude, which the update
// writes (update_kernels.h), to E: not lower than the tensor's largest minus 12, then clamped.
cudaError_t LaunchClampExponents(const TensorBlocks& tensors, int precision_bits,
                                 int16_t* exponents, cudaStream_t stream);

// exact::Units::Reset.
cudaError_t LaunchResetExponents(int64_t blocks, int precision_bits, int16_t* exponents,
                                 cudaStream_t stream);

}  // namespace ringmaster::cuda
