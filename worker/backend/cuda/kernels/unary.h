// Elementwise ops of one operand: relu with its gradient, and cast. Launchers enqueue and wait for
// nothing; each returns what cudaGetLastError says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ringmaster::cuda {

// relu and its gradient. T: float, __nv_bfloat16, __half. y may be x, dx may be y or dy.
template <typename T>
cudaError_t LaunchRelu(const T* x, T* y, int64_t count, cudaStream_t stream);

// dx = dy where y > 0, else 0.
template <typename T>
cudaError_t LaunchReluGradient(const T* y, const T* dy, T* dx, int64_t count, cudaStream_t stream);

// y = x in another floating type, rounded half to even. From and To: float, __nv_bfloat16, __half.
template <typename From, typename To>
cudaError_t LaunchCast(const From* x, To* y, int64_t count, cudaStream_t stream);

}  // namespace ringmaster::cuda
