// y = a + b, element by element. T: float, __nv_bfloat16, __half. Enqueues and waits for nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ringmaster::cuda {

template <typename T>
cudaError_t LaunchAdd(const T* a, const T* b, T* y, int64_t count, cudaStream_t stream);

}  // namespace ringmaster::cuda
