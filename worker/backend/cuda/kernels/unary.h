// Elementwise ops of one operand and their gradients. Launchers enqueue and wait for nothing; each
// returns what cudaGetLastError says. T, From and To: float, __nv_bfloat16, __half.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/graph/ops/op_list.h"

namespace ringmaster::cuda {

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

}  // namespace ringmaster::cuda
