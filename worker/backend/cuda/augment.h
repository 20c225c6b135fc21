// Makes a model's images out of stored pixels on one GPU, with the bits of graph::Augmenter. Used
// on one thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "common/graph/augment/augment.h"
#include "common/status.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernels/random.h"

namespace ringmaster::cuda {

class CudaAugment {
 public:
  // On the GPU that is current. `augmenter` outlives it. UNIMPLEMENTED for a longer list and for
  // larger images than kernels can count.
  [[nodiscard]] static StatusOr<std::unique_ptr<CudaAugment>> Create(
      const graph::Augmenter& augmenter, graph::Use use);

  // Scratch of Launch, in bytes.
  [[nodiscard]] size_t workspace_bytes(int64_t rows) const;

  // Enqueues; allocates nothing and keeps addresses alone, so that it may be captured and what lies
  // there may change before each replay. `pixels`: rows * H*W*C of stored images; `seed_and_step`:
  // two words, the augmenter's seed is not read; `samples`: a word a row; `images`: rows * H*W*C of
  // the model's. All in the GPU's memory, the workspace at a multiple of kAlignment.
  [[nodiscard]] Status Launch(const uint8_t* pixels, int64_t rows, const uint64_t* seed_and_step,
                              const uint64_t* samples, std::byte* workspace, float* images,
                              cudaStream_t stream) const;

 private:
  CudaAugment(const graph::ImageShape& stored, const graph::ImageShape& model);
  void Append(AugmentKind kind, bool draws);
  // Puts tables on the GPU: what each operation draws with, and the taps.
  Status Upload(std::span<const AugmentDraw> draws,
                const std::optional<graph::BilinearResize>& resize);

  AugmentPlan plan_;
  Arena tables_{Place::kDevice};
};

}  // namespace ringmaster::cuda
