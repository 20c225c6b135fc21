// softmax_cross_entropy of float32 logits(rows, classes) and int32 labels, computed in double.
// Labels lie in [0, classes).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace ringmaster::cuda {

struct LogitsShape {
  int64_t rows, classes;
};

size_t LossWorkspace(const LogitsShape& shape);

// loss = the sum over rows of -log softmax(logits)[label], in one fixed order; correct = how many
// rows have their first largest logit at the label.
cudaError_t LaunchLoss(const LogitsShape& shape, const float* logits, const int32_t* labels,
                       float* loss, float* correct, void* workspace, cudaStream_t stream);

// dlogits = (softmax - onehot) seed.
cudaError_t LaunchLossGradient(const LogitsShape& shape, const float* logits, const int32_t* labels,
                               const float* seed, float* dlogits, cudaStream_t stream);

}  // namespace ringmaster::cuda
