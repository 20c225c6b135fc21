// max_pool over N,H,W,C and its gradient. Padding is never the maximum; the first maximum of a
// window, row by row, takes the whole gradient. T: float, __nv_bfloat16, __half.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ringmaster::cuda {

// One axis of a sliding window: output position p covers input positions p * stride - pad to
// p * stride - pad + window - 1, of which only those inside the input count.
struct PoolAxis {
  int input, output, window, stride, pad;
};

struct PoolShape {
  int64_t samples;
  int64_t channels;
  PoolAxis height, width;
};

template <typename T>
cudaError_t LaunchMaxPool(const PoolShape& shape, const T* x, T* y, cudaStream_t stream);

template <typename T>
cudaError_t LaunchMaxPoolGradient(const PoolShape& shape, const T* x, const T* y, const T* dy,
                                  T* dx, cudaStream_t stream);

// The mean over positions of N,H,W,C by sample and channel, and its gradient. T: float,
// __nv_bfloat16, __half; sums in float32, in one fixed order.
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
