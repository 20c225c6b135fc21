// What normalizes by sums over many elements: batch_norm, group_norm and layer_norm, softmax and
// the losses over it. Launchers enqueue and wait for nothing; each returns what cudaGetLastError
// says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "common/graph/tensor_type.h"

namespace ringmaster::cuda {

// batch_norm over rows by channels: statistics, application, and both passes of the gradient. T:
// float, __nv_bfloat16, __half; statistics and parameters are float32. A gamma or beta that is
// nullptr stands for 1 or 0, and a gradient of theirs that is nullptr is not wanted. Sums run in
// one fixed order: float32 inside a piece of rows, double over the pieces.

struct BatchNormShape {
  int64_t rows;
  int64_t channels;
  float epsilon;
  graph::Activation activation;
  bool residual;
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

// beta is read where the shape has an activation and no residual; y is where it has one, and
// dresidual is written. more_dy may be nullptr.
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

// group_norm and layer_norm, which normalize sets of elements, and both passes of their gradient.
// T: float, __nv_bfloat16, __half; statistics and parameters are float32. A gamma or beta that is
// nullptr stands for 1 or 0, and a gradient of theirs that is nullptr is not wanted. Sums over a
// set are double from pack to pack, in one fixed order.

// x as (samples, positions, groups, channels of a group): a set is a group of a sample
// (common/graph/ops/group_norm.h).
struct GroupNormShape {
  int64_t samples, positions, groups, channels;
  double epsilon;

  int64_t sets() const { return samples * groups; }
  int64_t rows() const { return samples * positions; }
  int64_t all_channels() const { return groups * channels; }
};

// y, and by set the mean and the deviation's inverse.
template <typename T>
cudaError_t LaunchGroupNorm(const GroupNormShape& shape, const T* x, const float* gamma,
                            const float* beta, T* y, float* mean, float* inverse,
                            cudaStream_t stream);

template <typename T>
struct GroupNormGradientOperands {
  const T *x, *dy;
  const float *mean, *inverse, *gamma;
  T* dx;
  float *dgamma, *dbeta;
  void* workspace;  // GroupNormWorkspace bytes
};

// For elements of `element_bytes`.
size_t GroupNormWorkspace(const GroupNormShape& shape, size_t element_bytes);
template <typename T>
cudaError_t LaunchGroupNormGradient(const GroupNormShape& shape,
                                    const GroupNormGradientOperands<T>& operands,
                                    cudaStream_t stream);

// softmax over rows of classes; softmax_cross_entropy of float32 logits(rows, classes) and int32
// labels, computed in double, and top_k. Labels lie in [0, classes).

// y = exp(x) / sum(exp(x)) of each row, in float32 with sums in double. T: float, __nv_bfloat16,
// __half.
template <typename T>
cudaError_t LaunchSoftmax(int64_t rows, int64_t classes, const T* x, T* y, cudaStream_t stream);

// dx = y (dy - sum(dy y)) of each row.
template <typename T>
cudaError_t LaunchSoftmaxGradient(int64_t rows, int64_t classes, const T* y, const T* dy, T* dx,
                                  cudaStream_t stream);

struct LogitsShape {
  int64_t rows, classes;
  double smoothing = 0;  // what all classes share of a target
};

// Of both sums.
size_t LossWorkspace(const LogitsShape& shape);

// loss = the sum over rows of -sum target log softmax(logits), in one fixed order. `share`: of a
// row's own target, the rest is the next row's; nullptr: all of it.
cudaError_t LaunchLoss(const LogitsShape& shape, const float* logits, const int32_t* labels,
                       const float* share, float* loss, void* workspace, cudaStream_t stream);

// hits = how many rows have fewer than k logits in front of the label's.
cudaError_t LaunchTopK(const LogitsShape& shape, int64_t k, const float* logits,
                       const int32_t* labels, float* hits, void* workspace, cudaStream_t stream);

// dlogits = (softmax - target) seed.
cudaError_t LaunchLossGradient(const LogitsShape& shape, const float* logits, const int32_t* labels,
                               const float* seed, const float* share, float* dlogits,
                               cudaStream_t stream);

}  // namespace ringmaster::cuda
