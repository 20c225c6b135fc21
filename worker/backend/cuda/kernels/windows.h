// Ops of windows that slide over images: pools and depthwise convolution. Launchers enqueue and
// wait for nothing; each returns what cudaGetLastError says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace ringmaster::cuda {

// Pools over N,H,W,C, and their gradients. Padding is never the maximum; the first maximum of a
// window, row by row, takes the whole gradient of a max_pool. T: float, __nv_bfloat16, __half.

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

// Windows that overlap, or leave gaps, may have 65534 positions, and so many may lie over one
// element as a block of threads keeps maxima of; windows that lie side by side may be of any size.
// cudaErrorNotSupported where it cannot be done.
template <typename T>
[[nodiscard]] bool CanPoolGradient(const PoolShape& shape);
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

// Depthwise convolution over N,H,W,C, and its gradients: filter o reads channel o / multiplier
// alone. Kernels are O,h,w,1. T: float, __nv_bfloat16, __half; sums are float32, those of the
// weights' gradient double over pieces of rows, in one fixed order.

struct DepthwiseAxis {
  int input, window, stride, pad, dilation, output;  // pad: before the first element
};

struct DepthwiseShape {
  int64_t samples, channels;
  int64_t multiplier;  // filters of one channel
  DepthwiseAxis height, width;

  int64_t filters() const { return channels * multiplier; }
  int64_t taps() const { return int64_t{height.window} * width.window; }
};

// y = activation(x * w + bias); `bias` may be nullptr.
template <typename T>
cudaError_t LaunchDepthwise(const DepthwiseShape& shape, const T* x, const T* w, const float* bias,
                            bool relu, T* y, cudaStream_t stream);

template <typename T>
cudaError_t LaunchDepthwiseInputGradient(const DepthwiseShape& shape, const T* dy, const T* w,
                                         T* dx, cudaStream_t stream);

// Scratch of the function below in bytes, for elements of `element_bytes`.
size_t DepthwiseWorkspace(const DepthwiseShape& shape, size_t element_bytes);
template <typename T>
cudaError_t LaunchDepthwiseWeightGradient(const DepthwiseShape& shape, const T* x, const T* dy,
                                          float* dw, void* workspace, cudaStream_t stream);

}  // namespace ringmaster::cuda
