// Losses and measures over pairs and their gradients, by the formulas of
// common/graph/ops/pair_loss.h: float32, with sums in double. Launchers enqueue and wait for
// nothing; each returns what cudaGetLastError says. No atomics: the same bits on every run.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "common/graph/ops/op_list.h"

namespace ringmaster::cuda {

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
