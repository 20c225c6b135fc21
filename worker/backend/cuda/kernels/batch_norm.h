// batch_norm over rows by channels: statistics, application, and both passes of the gradient. T:
// float, __nv_bfloat16, __half; statistics and parameters are float32. A gamma or beta that is
// nullptr stands for 1 or 0, and a gradient of theirs that is nullptr is not wanted. Sums run in
// one fixed order: float32 inside a piece of rows, double over the pieces.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace ringmaster::cuda {

struct BatchNormShape {
  int64_t rows;
  int64_t channels;
  float epsilon;
  bool relu, residual;
};

// Scratch of each function below that takes one, in bytes, for elements of `element_bytes`.
size_t BatchNormWorkspace(const BatchNormShape& shape, size_t element_bytes);

// The residual is read where the shape has one only.
template <typename T>
struct BatchNormOperands {
  const T *x, *residual;
  const float *gamma, *beta;
  T* y;
  void* workspace;
};

// mean and variance (biased) of x by channel, then y.
template <typename T>
cudaError_t LaunchBatchNorm(const BatchNormShape& shape, const BatchNormOperands<T>& operands,
                            float* mean, float* variance, cudaStream_t stream);

// y by given statistics.
template <typename T>
cudaError_t LaunchBatchNormInference(const BatchNormShape& shape,
                                     const BatchNormOperands<T>& operands, const float* mean,
                                     const float* variance, cudaStream_t stream);

// dx of y by given statistics; it does without the activation.
template <typename T>
cudaError_t LaunchBatchNormInferenceGradient(const BatchNormShape& shape, const T* dy,
                                             const float* gamma, const float* variance, T* dx,
                                             void* workspace, cudaStream_t stream);

// beta is read where the shape has relu and no residual; y is where it has one, and dresidual is
// written. more_dy may be nullptr.
template <typename T>
struct BatchNormGradientOperands {
  const T *x, *dy, *more_dy, *y;
  const float *gamma, *beta, *mean, *variance;
  T *dx, *dresidual;
  float *dgamma, *dbeta;
  void* workspace;
};

template <typename T>
cudaError_t LaunchBatchNormGradient(const BatchNormShape& shape,
                                    const BatchNormGradientOperands<T>& operands,
                                    cudaStream_t stream);

}  // namespace ringmaster::cuda
