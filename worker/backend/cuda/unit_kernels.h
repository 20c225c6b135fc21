// The exponents of the next step on the GPU: the bits of common/exact/units.h. All pointers are to
// device memory. Launchers enqueue and wait for nothing; each returns what cudaGetLastError says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ringmaster::cuda {

// The blocks of a model: tensor t of the arena has blocks first_blocks[t] to first_blocks[t + 1].
struct UnitBlocks {
  int64_t blocks;
  const uint32_t* counts;  // elements of each block, 1 to 256
  int64_t tensors;
  const uint32_t* first_blocks;  // tensors + 1 of them, in arena order
};

// exact::Units::Advance: E of every block from the reduced gradients in arena layout. It is the two
// launches below, one after the other.
cudaError_t LaunchNextExponents(const UnitBlocks& units, const float* reduced, int precision_bits,
                                int16_t* exponents, cudaStream_t stream);

// exponents[b] = exact::ExponentOf of the largest magnitude of block b alone.
cudaError_t LaunchBlockExponents(const UnitBlocks& units, const float* reduced, int16_t* exponents,
                                 cudaStream_t stream);
// Makes E of these: not lower than the tensor's largest minus 12, then clamped.
cudaError_t LaunchClampExponents(const UnitBlocks& units, int precision_bits, int16_t* exponents,
                                 cudaStream_t stream);

// exact::Units::Reset.
cudaError_t LaunchResetExponents(int64_t blocks, int precision_bits, int16_t* exponents,
                                 cudaStream_t stream);

}  // namespace ringmaster::cuda
