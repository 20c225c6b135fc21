// A core on a GPU: the thread that made it, the libraries' handles, two streams and its memory on
// both sides. Used on that thread only. Several cores may share a GPU: while the gradients of one
// are added up on the host, the other one computes.
#pragma once

#include <memory>
#include <thread>

#include "worker/backend/backend.h"
#include "worker/backend/cuda/cuda_executable.h"
#include "worker/backend/cuda/device/device.h"

namespace ringmaster::cuda {

class CudaCore final : public Core {
 public:
  // Sets affinity of the calling thread and makes the GPU current on it.
  [[nodiscard]] static StatusOr<std::unique_ptr<CudaCore>> Create(const CoreOptions& options,
                                                                  const DeviceFacts& facts,
                                                                  Replay replay);

  StatusOr<std::unique_ptr<Executable>> Bind(const graph::Program& program, Weights& weights,
                                             const graph::Augmenter* augmenter) override;
  // On the GPU; without what all cores share: weights, and what CUDA took.
  [[nodiscard]] uint64_t memory_bytes() const override { return lane_.device.size(); }

 private:
  CudaCore(CoreOptions options, std::unique_ptr<Device> device, Replay replay);
  Status OpenLane();
  // Makes room for a program, or says with its plan why there is none.
  Status MakeRoom(const graph::Program& program, const StepLayout& layout);

  const CoreOptions options_;
  const std::unique_ptr<Device> device_;
  const Replay replay_;
  const std::thread::id thread_;
  Lane lane_;
};

}  // namespace ringmaster::cuda
