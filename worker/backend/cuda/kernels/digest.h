// The digest's sum over blocks that lie on the GPU: the bits of common/exact/digest.h. All pointers
// are to device memory. Enqueues and waits for nothing; returns what cudaGetLastError says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace ringmaster::cuda {

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

}  // namespace ringmaster::cuda
