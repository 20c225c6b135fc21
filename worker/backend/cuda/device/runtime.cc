#include "worker/backend/cuda/device/runtime.h"

#include <cuda_runtime_api.h>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "common/mutex.h"
#include "worker/backend/backend.h"
#include "worker/backend/core_layout.h"
#include "worker/backend/failure.h"

namespace ringmaster::cuda {

namespace {

std::atomic<std::chrono::milliseconds> await_limit{std::chrono::minutes(2)};

// Why the process can compute no more; the first reason stays. Lives as long as the process.
struct LostReason {
  Mutex mu;
  std::string text ABSL_GUARDED_BY(mu);
};
LostReason& TheReason() {
  static auto* const reason = new LostReason;
  return *reason;
}

// Nothing of CUDA is called any more: a call may hang, and destructors make some.
[[noreturn]] void EndProcess(const std::string& text) {
  spdlog::critical("{}: the GPU is of no use to this process any more, which ends", text);
  spdlog::default_logger()->flush();
  std::_Exit(kLostExitCode);
}

}  // namespace

Damage DamageOf(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchTimeout:
      return Damage::kDevice;
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
      return Damage::kProcess;
    default:
      return Damage::kNone;
  }
}

Status FromCuda(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string text =
      fmt::format("{}: {}: {}", what, cudaGetErrorName(error), cudaGetErrorString(error));
  const Damage damage = DamageOf(error);
  if (damage == Damage::kDevice) EndProcess(text);
  if (damage == Damage::kProcess) {
    const MutexLock lock(TheReason().mu);
    if (TheReason().text.empty()) TheReason().text = text;
  }
  return error == cudaErrorMemoryAllocation ? OutOfMemory("{}", text) : Internal("{}", text);
}

Status Lost() {
  const MutexLock lock(TheReason().mu);
  return TheReason().text.empty() ? absl::OkStatus() : Internal("{}", TheReason().text);
}

void SetAwaitLimit(std::chrono::milliseconds limit) { await_limit = limit; }

Status Await(cudaEvent_t event, std::string_view what) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kAwake(3), kLongest(100);
  constexpr int kPart = 256;  // of what was waited so far, slept at a time
  const Clock::time_point begin = Clock::now();
  const std::chrono::milliseconds limit = await_limit;
  while (true) {
    const cudaError_t state = cudaEventQuery(event);
    if (state != cudaErrorNotReady) return FromCuda(state, what);
    (void)cudaGetLastError();  // no error of the next launch
    const Clock::duration waited = Clock::now() - begin;
    if (waited < kAwake) {
      std::this_thread::yield();
      continue;
    }
    if (waited >= limit) {
      EndProcess(
          fmt::format("{}: the GPU has not done it for {} ms (--run-limit)", what, limit.count()));
    }
    std::this_thread::sleep_for(std::min<Clock::duration>(waited / kPart, kLongest));
  }
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
