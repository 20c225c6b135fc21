// An InputStage on one GPU: slots in its memory, filled through page-locked memory on a stream of
// its own, beside the cores' streams. Thread-safe.
#pragma once

#include <absl/base/thread_annotations.h>

#include <atomic>
#include <memory>
#include <vector>

#include "common/mutex.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/device/staging.h"

namespace ringmaster::cuda {

// Memory of the GPU for the pixels of one shard.
struct InputSlot {
  std::byte* data = nullptr;
  Event arrived;                   // recorded after what was last brought here
  std::atomic<bool> taken{false};  // by a CudaStagedInput
};

class CudaStagedInput final : public StagedInput {
 public:
  // The slot is this one's already.
  CudaStagedInput(InputSlot* slot, int device, size_t bytes)
      : slot_(slot), device_(device), bytes_(bytes) {}
  ~CudaStagedInput() override { slot_->taken.store(false, std::memory_order_release); }
  CudaStagedInput(const CudaStagedInput&) = delete;
  CudaStagedInput& operator=(const CudaStagedInput&) = delete;

  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }
  // Enqueues, after they have arrived, a copy of all bytes. This must outlive the copy.
  [[nodiscard]] Status CopyTo(void* to, cudaStream_t stream) const;

 private:
  InputSlot* const slot_;
  const int device_;
  const size_t bytes_;
};

class CudaInputStage final : public InputStage {
 public:
  // `options.device` is the GPU's own index. Takes all memory that it ever needs, or
  // RESOURCE_EXHAUSTED says how much that would be. Makes the GPU current on this thread.
  [[nodiscard]] static StatusOr<std::unique_ptr<CudaInputStage>> Create(
      const InputStageOptions& options);
  ~CudaInputStage() override;

  // Makes the GPU current on this thread.
  StatusOr<std::shared_ptr<const StagedInput>> Bring(std::span<const uint8_t> pixels) override;

 private:
  explicit CudaInputStage(const InputStageOptions& options);
  Status Open();
  [[nodiscard]] Status MakeCurrent() const;

  const int device_;
  const size_t slot_bytes_;

  Mutex mu_;
  Stream stream_;
  Arena memory_{Place::kDevice};
  std::vector<InputSlot> slots_;
  std::unique_ptr<Uploader> uploader_ ABSL_GUARDED_BY(mu_);  // on stream_
};

}  // namespace ringmaster::cuda
