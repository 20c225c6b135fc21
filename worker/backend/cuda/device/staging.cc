#include "worker/backend/cuda/device/staging.h"

#include <algorithm>
#include <cstring>

#include "worker/backend/core_layout.h"

namespace ringmaster::cuda {

StatusOr<std::unique_ptr<Uploader>> Uploader::Create(cudaStream_t stream) {
  std::unique_ptr<Uploader> uploader(new Uploader(stream));
  RING_RETURN_IF_ERROR(uploader->memory_.Grow(kSlots * kSlotBytes));
  for (Event& event : uploader->sent_) {
    RING_ASSIGN_OR_RETURN(event, MakeEvent());
  }
  return uploader;
}

// An event that was never recorded counts as done.
Status Uploader::NextSlot() {
  RING_RETURN_IF_ERROR(FromCuda(cudaEventRecord(sent_[slot_].get(), stream_), "upload"));
  slot_ = (slot_ + 1) % kSlots;
  used_ = 0;
  return Await(sent_[slot_].get(), "upload");
}

Status Uploader::Copy(const void* from, void* to, size_t bytes) {
  constexpr size_t kCacheLine = 64;
  size_t done = 0;
  while (done < bytes) {
    if (used_ >= kSlotBytes) RING_RETURN_IF_ERROR(NextSlot());
    const size_t part = std::min(bytes - done, kSlotBytes - used_);
    std::byte* const staged = memory_.data() + slot_ * kSlotBytes + used_;
    std::memcpy(staged, static_cast<const std::byte*>(from) + done, part);
    RING_RETURN_IF_ERROR(FromCuda(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, staged, part,
                                                  cudaMemcpyHostToDevice, stream_),
                                  "upload"));
    used_ += AlignUp(part, kCacheLine);
    done += part;
  }
  return absl::OkStatus();
}

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
  RING_RETURN_IF_ERROR(Await(arrived_[slot].get(), "download"));
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
