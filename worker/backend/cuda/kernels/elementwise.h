// Ops by the formulas of common/graph/ops, element by element: of one operand, and losses over
// pairs. Launchers enqueue and wait for nothing; each returns what cudaGetLastError says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "common/graph/ops/op_list.h"

namespace ringmaster::cuda {

// Of one operand, and their gradients. T, From and To: float, __nv_bfloat16, __half.

// relu and its gradient. y may be x, dx may be y or dy.
template <typename T>
cudaError_t LaunchRelu(const T* x, T* y, int64_t count, cudaStream_t stream);

// dx = dy where y > 0, else 0.
template <typename T>
cudaError_t LaunchReluGradient(const T* y, const T* dy, T* dx, int64_t count, cudaStream_t stream);

// y = x in another floating type, rounded half to even.
template <typename From, typename To>
cudaError_t LaunchCast(const From* x, To* y, int64_t count, cudaStream_t stream);

// An op of the elementwise family or a gradient of one, by the formulas of
// common/graph/ops/unary.h; cudaErrorInvalidValue for any other kind. `inputs` are the op's, as
// many as it has; y may be any of them.
template <typename T>
cudaError_t LaunchUnary(const graph::Kind& kind, const T* const inputs[3], T* y, int64_t count,
                        cudaStream_t stream);

// Losses and measures over pairs and their gradients, by the formulas of
// common/graph/ops/pair_loss.h: float32, with sums in double. No atomics: the same bits on every
// run.

struct PairCount {
  int64_t samples, elements;  // elements: of each sample

  [[nodiscard]] int64_t pairs() const { return samples * elements; }
};

// Of LaunchPairLoss.
size_t PairLossWorkspace(const PairCount& count);

// sum = the sum over samples of the mean of f(prediction, target). cudaErrorInvalidValue when
// `kind` is no such op.
cudaError_t LaunchPairLoss(const graph::Kind& kind, const PairCount& count,
                           const float* predictions, const float* targets, float* sum,
                           void* workspace, cudaStream_t stream);

// dpredictions = f'(prediction, target) seed / elements, of a gradient op likewise; they may lie
// where predictions or targets do.
cudaError_t LaunchPairLossGradient(const graph::Kind& kind, const PairCount& count,
                                   const float* predictions, const float* targets,
                                   const float* seed, float* dpredictions, cudaStream_t stream);

}  // namespace ringmaster::cuda
