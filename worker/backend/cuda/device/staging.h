// Copies between a GPU and any host memory through page-locked slots. Each used on one thread and
// one stream.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <memory>

#include "common/status.h"
#include "worker/backend/cuda/device/runtime.h"

namespace ringmaster::cuda {

// Copies from any host memory to a GPU through a ring of page-locked slots: while one slot is on
// its way the next is filled, and the source may change as soon as Copy returns. Used on one thread
// and one stream.
class Uploader {
 public:
  // On the GPU that is current. `stream` outlives it.
  [[nodiscard]] static StatusOr<std::unique_ptr<Uploader>> Create(cudaStream_t stream);

  // Enqueues; waits only for slots that are still on their way.
  [[nodiscard]] Status Copy(const void* from, void* to, size_t bytes);

 private:
  explicit Uploader(cudaStream_t stream) : stream_(stream), memory_(Place::kPinned) {}
  Status NextSlot();

  // Large enough that a copy's start does not count, small enough for a processor's cache.
  static constexpr size_t kSlotBytes = size_t{4} << 20;
  static constexpr size_t kSlots = 3;

  const cudaStream_t stream_;
  Arena memory_;
  std::array<Event, kSlots> sent_;  // what was last in that slot
  size_t slot_ = 0;
  size_t used_ = 0;  // bytes of it
};

// Copies from a GPU to any host memory through two page-locked slots: while one is on its way the
// other one is read. The counterpart of Uploader. Used on one thread and one stream.
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
