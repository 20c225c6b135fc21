// Errors of CUDA as Status. Thread-safe (free functions).
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "common/status.h"

namespace ringmaster::cuda {

// OK, or INTERNAL (RESOURCE_EXHAUSTED when device memory is used up) with what was being done and
// CUDA's name and text of the error.
[[nodiscard]] Status FromCuda(cudaError_t error, std::string_view what);

// Of the launches since the last call on this thread.
[[nodiscard]] inline Status LaunchStatus(std::string_view what) {
  return FromCuda(cudaGetLastError(), what);
}

}  // namespace ringmaster::cuda
