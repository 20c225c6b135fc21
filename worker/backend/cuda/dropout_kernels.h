// dropout over samples, by masks drawn while it runs. T: float, __nv_bfloat16, __half.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/backend/cuda/dropout_mask.h"
#include "worker/backend/cuda/stream_key.h"

namespace ringmaster::cuda {

// keys[row] = the stream of that row's sample.
cudaError_t LaunchStreamKeys(const StreamName& name, uint64_t purpose,
                             const uint64_t* seed_and_step, const uint64_t* samples,
                             StreamKey* keys, int64_t rows, cudaStream_t stream);

// y may be x.
template <typename T>
cudaError_t LaunchDropout(const DropoutMask& mask, const StreamKey* keys, const T* x, T* y,
                          int64_t rows, int64_t row_elements, cudaStream_t stream);

}  // namespace ringmaster::cuda
