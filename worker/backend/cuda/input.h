// Pixels on their way to a step: copied to the GPU ahead of it, and made into a model's images.
#pragma once

#include <absl/base/thread_annotations.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/graph/augment/augment.h"
#include "common/graph/tensor_type.h"
#include "common/mutex.h"
#include "common/status.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernels/random.h"

namespace ringmaster::cuda {

// An InputStage on one GPU: slots in its memory, filled through page-locked memory on a stream of
// its own, beside the cores' streams. Thread-safe.

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

// Makes a model's images out of stored pixels on one GPU, with the bits of graph::Augmenter; in 16
// bits those of a cast of them. Used on one thread.
class CudaAugment {
 public:
  // On the GPU that is current. `augmenter` outlives it; `type`: of the images, a floating one.
  // UNIMPLEMENTED for a longer list and for larger images than kernels can count.
  [[nodiscard]] static StatusOr<std::unique_ptr<CudaAugment>> Create(
      const graph::Augmenter& augmenter, graph::Use use,
      graph::DType type = graph::DType::kFloat32);

  // Scratch of Launch, in bytes.
  [[nodiscard]] size_t workspace_bytes(int64_t rows) const;

  // Enqueues; allocates nothing and keeps addresses alone, so that it may be captured and what lies
  // there may change before each replay. `pixels`: rows * H*W*C of stored images; `seed_and_step`:
  // two words, the augmenter's seed is not read; `samples`: a word a row; `images`: rows * H*W*C of
  // the model's. All in the GPU's memory, the workspace at a multiple of kAlignment.
  [[nodiscard]] Status Launch(const uint8_t* pixels, int64_t rows, const uint64_t* seed_and_step,
                              const uint64_t* samples, std::byte* workspace, void* images,
                              cudaStream_t stream) const;

 private:
  CudaAugment(const graph::ImageShape& stored, const graph::ImageShape& model, graph::DType type);
  void Append(AugmentKind kind, bool draws);
  // Puts tables on the GPU: what each operation draws with, and the taps.
  Status Upload(std::span<const AugmentDraw> draws,
                const std::optional<graph::BilinearResize>& resize);

  const graph::DType type_;
  AugmentPlan plan_;
  Arena tables_{Place::kDevice};
};

}  // namespace ringmaster::cuda
