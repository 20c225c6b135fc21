#include "worker/backend/cuda/downloader.h"

#include <algorithm>
#include <cstring>

namespace ringmaster::cuda {

StatusOr<std::unique_ptr<Downloader>> Downloader::Create(cudaStream_t stream) {
  std::unique_ptr<Downloader> downloader(new Downloader(stream));
  RING_RETURN_IF_ERROR(downloader->memory_.Grow(downloader->arrived_.size() * kSlotBytes));
  for (Event& event : downloader->arrived_) {
    RING_ASSIGN_OR_RETURN(event, MakeEvent());
  }
  return downloader;
}

Status Downloader::Start(const std::byte* from, size_t part, size_t bytes) {
  const size_t slot = part % arrived_.size();
  const size_t at = part * kSlotBytes;
  RING_RETURN_IF_ERROR(
      FromCuda(cudaMemcpyAsync(memory_.data() + slot * kSlotBytes, from + at,
                               std::min(bytes - at, kSlotBytes), cudaMemcpyDeviceToHost, stream_),
               "download"));
  return FromCuda(cudaEventRecord(arrived_[slot].get(), stream_), "download");
}

Status Downloader::Finish(std::byte* to, size_t part, size_t bytes) {
  const size_t slot = part % arrived_.size();
  const size_t at = part * kSlotBytes;
  RING_RETURN_IF_ERROR(FromCuda(cudaEventSynchronize(arrived_[slot].get()), "download"));
  std::memcpy(to + at, memory_.data() + slot * kSlotBytes, std::min(bytes - at, kSlotBytes));
  return absl::OkStatus();
}

Status Downloader::Copy(const void* from, void* to, size_t bytes) {
  const size_t parts = (bytes + kSlotBytes - 1) / kSlotBytes;
  for (size_t part = 0; part <= parts; ++part) {
    if (part < parts) {
      RING_RETURN_IF_ERROR(Start(static_cast<const std::byte*>(from), part, bytes));
    }
    if (part > 0) RING_RETURN_IF_ERROR(Finish(static_cast<std::byte*>(to), part - 1, bytes));
  }
  return absl::OkStatus();
}

}  // namespace ringmaster::cuda
