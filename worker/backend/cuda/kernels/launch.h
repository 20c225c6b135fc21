// Putting a kernel on a stream. For launchers, in .cu files only. Grids come from shapes alone,
// never from the device, so that bits do not depend on it. Thread-safe (free functions).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ringmaster::cuda {

// No blocks are nothing to do, which CUDA calls an error. cudaErrorInvalidConfiguration when there
// are too many for a grid (2^31).
template <typename... Parameters, typename... Arguments>
cudaError_t Enqueue(void (*kernel)(Parameters...), int64_t blocks, dim3 block, cudaStream_t stream,
                    Arguments... arguments) {
  if (blocks < 0 || blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  if (blocks > 0) kernel<<<static_cast<unsigned>(blocks), block, 0, stream>>>(arguments...);
  return cudaGetLastError();
}

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace ringmaster::cuda
