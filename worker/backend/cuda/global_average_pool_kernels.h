// The mean over positions of N,H,W,C by sample and channel, and its gradient. T: float,
// __nv_bfloat16, __half; sums in float32, in one fixed order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ringmaster::cuda {

struct AverageShape {
  int64_t samples, positions, channels;
};

// y(N,C) from x(N,H,W,C).
template <typename T>
cudaError_t LaunchGlobalAveragePool(const AverageShape& shape, const T* x, T* y,
                                    cudaStream_t stream);

// dx(N,H,W,C) from dy(N,C).
template <typename T>
cudaError_t LaunchGlobalAveragePoolGradient(const AverageShape& shape, const T* dy, T* dx,
                                            cudaStream_t stream);

}  // namespace ringmaster::cuda
