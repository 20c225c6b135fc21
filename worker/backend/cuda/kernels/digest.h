// Sums of hashes of blocks that lie on the GPU: the bits of common/exact/digest.h and word_hash.h.
// All pointers are to device memory. Enqueues and waits for nothing; returns what cudaGetLastError
// says.
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

// Likewise of float32 values as words (common/exact/word_hash.h), under the names `name` + tensor;
// *finite becomes 0 when one of them is not finite, and stays what it is else.
cudaError_t LaunchWordHash(const BlockNames& names, uint32_t name, const float* values,
                           int64_t blocks, uint64_t* scratch, uint64_t* sum, uint64_t* finite,
                           cudaStream_t stream);
// Of one exponent a block: what exact::Units::Hash gives. Blocks of a tensor follow each other.
cudaError_t LaunchExponentHash(const BlockNames& names, const int16_t* exponents, int64_t blocks,
                               uint64_t* scratch, uint64_t* sum, cudaStream_t stream);

}  // namespace ringmaster::cuda
