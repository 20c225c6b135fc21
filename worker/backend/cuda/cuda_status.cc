#include "worker/backend/cuda/cuda_status.h"

namespace ringmaster::cuda {

Status FromCuda(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const auto code = error == cudaErrorMemoryAllocation ? absl::StatusCode::kResourceExhausted
                                                       : absl::StatusCode::kInternal;
  return Error(code, "{}: {}: {}", what, cudaGetErrorName(error), cudaGetErrorString(error));
}

}  // namespace ringmaster::cuda
