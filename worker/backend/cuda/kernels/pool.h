// Pools over N,H,W,C, and their gradients. Padding is never the maximum; the first maximum of a
// window, row by row, takes the whole gradient of a max_pool. T: float, __nv_bfloat16, __half.
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

// The mean of a window, of those of its elements that are no padding; sums in float32, row by row.
template <typename T>
cudaError_t LaunchAveragePool(const PoolShape& shape, const T* x, T* y, cudaStream_t stream);

// Sums in float32 over the windows that an element lies in, in their order.
template <typename T>
cudaError_t LaunchAveragePoolGradient(const PoolShape& shape, const T* dy, T* dx,
                                      cudaStream_t stream);

// Of all positions of N,H,W,C by sample and channel: the maximum (NaN where the first one is), the
// mean, by sums in float32 in one fixed order, and the mean's gradient.
struct ImageShape {
  int64_t samples, positions, channels;
};

// y(N,C) from x(N,H,W,C).
template <typename T>
cudaError_t LaunchGlobalMaxPool(const ImageShape& shape, const T* x, T* y, cudaStream_t stream);
template <typename T>
cudaError_t LaunchGlobalAveragePool(const ImageShape& shape, const T* x, T* y, cudaStream_t stream);

// dx(N,H,W,C) from dy(N,C).
template <typename T>
cudaError_t LaunchGlobalAveragePoolGradient(const ImageShape& shape, const T* dy, T* dx,
                                            cudaStream_t stream);

}  // namespace ringmaster::cuda
