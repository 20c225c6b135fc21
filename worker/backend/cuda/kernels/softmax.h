// softmax over rows of classes; softmax_cross_entropy of float32 logits(rows, classes) and int32
// labels, computed in double, and top_k. Labels lie in [0, classes).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace ringmaster::cuda {

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
