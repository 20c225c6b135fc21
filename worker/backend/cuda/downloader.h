// Copies from a GPU to any host memory through two page-locked slots: while one is on its way the
// other one is read. The counterpart of Uploader. Used on one thread and one stream.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <memory>

#include "common/status.h"
#include "worker/backend/cuda/arena.h"
#include "worker/backend/cuda/handles.h"

namespace ringmaster::cuda {

class Downloader {
 public:
  // On the GPU that is current. `stream` outlives it.
  [[nodiscard]] static StatusOr<std::unique_ptr<Downloader>> Create(cudaStream_t stream);

  // After what is on the stream; the bytes are there when it returns.
  [[nodiscard]] Status Copy(const void* from, void* to, size_t bytes);

 private:
  explicit Downloader(cudaStream_t stream) : stream_(stream), memory_(Place::kPinned) {}
  Status Start(const std::byte* from, size_t part, size_t bytes);
  Status Finish(std::byte* to, size_t part, size_t bytes);

  // As an Uploader's.
  static constexpr size_t kSlotBytes = size_t{4} << 20;

  const cudaStream_t stream_;
  Arena memory_;
  std::array<Event, 2> arrived_;
};

}  // namespace ringmaster::cuda
