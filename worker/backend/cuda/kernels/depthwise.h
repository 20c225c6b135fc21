// Depthwise convolution over N,H,W,C, and its gradients: filter o reads channel o / multiplier
// alone. Kernels are O,h,w,1. T: float, __nv_bfloat16, __half; sums are float32, those of the
// weights' gradient double over pieces of rows, in one fixed order. Launchers enqueue and wait for
// nothing; each returns what cudaGetLastError says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace ringmaster::cuda {

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
