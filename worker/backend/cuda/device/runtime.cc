#include "worker/backend/cuda/device/runtime.h"

#include <cuda_runtime_api.h>

#include <chrono>
#include <thread>
#include <utility>

#include "worker/backend/failure.h"
namespace ringmaster::cuda {

Status FromCuda(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string text =
      fmt::format("{}: {}: {}", what, cudaGetErrorName(error), cudaGetErrorString(error));
  return error == cudaErrorMemoryAllocation ? OutOfMemory("{}", text) : Internal("{}", text);
}

Status Await(cudaEvent_t event, std::string_view what) {
  constexpr std::chrono::milliseconds kAwake(3);
  const auto end = std::chrono::steady_clock::now() + kAwake;
  do {
    const cudaError_t state = cudaEventQuery(event);
    if (state != cudaErrorNotReady) return FromCuda(state, what);
    (void)cudaGetLastError();  // no error of the next launch
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < end);
  return FromCuda(cudaEventSynchronize(event), what);
}

void Arena::Free() {
  void* const data = std::exchange(data_, nullptr);
  size_ = 0;
  if (data == nullptr) return;
  // At the end of the process CUDA may be gone before us, and its memory with it.
  (void)(place_ == Place::kDevice ? cudaFree(data) : cudaFreeHost(data));
}

Status Arena::Grow(size_t bytes) {
  if (bytes <= size_) return absl::OkStatus();
  Free();  // first: both at once may not fit
  ++version_;
  void* data = nullptr;
  const cudaError_t error =
      place_ == Place::kDevice ? cudaMalloc(&data, bytes) : cudaMallocHost(&data, bytes);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();  // reported here, not by the next launch
    return FromCuda(error, fmt::format("{} bytes of {} memory", bytes,
                                       place_ == Place::kDevice ? "GPU" : "page-locked host"));
  }
  data_ = static_cast<std::byte*>(data);
  size_ = bytes;
  return absl::OkStatus();
}

}  // namespace ringmaster::cuda
