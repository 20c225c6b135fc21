// NVIDIA GPUs as a backend: cuDNN for convolutions, cuBLASLt for products, own kernels for the
// rest; N,H,W,C throughout. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/backend/cuda/cuda_executable.h"
#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/device/gauges.h"

namespace ringmaster::cuda {

class CudaBackend final : public Backend {
 public:
  // UNAVAILABLE, with what is missing, where no GPU can be used. GPUs of another model than the
  // first are left alone: one worker has one numerics class. `build`: which one this is, of what is
  // kept for another process. `memory_fraction`: BackendOptions'.
  [[nodiscard]] static StatusOr<std::unique_ptr<CudaBackend>> Create(Replay replay = Replay::kGraph,
                                                                     std::string build = "",
                                                                     double memory_fraction = 0);

  // Host threads compute nothing that enters the result, so their number is 1 for everybody.
  [[nodiscard]] v1::NumericsClass numerics_class(uint32_t threads_per_core) const override;
  // reserved: what CUDA and its libraries take of a GPU (and other processes, where there are any),
  // measured when the backend was made. memory_per_core: all of a GPU but that.
  [[nodiscard]] v1::DeviceProfile device_profile() const override;
  [[nodiscard]] uint32_t devices() const override { return static_cast<uint32_t>(devices_.size()); }
  [[nodiscard]] std::vector<v1::DeviceFigures> figures() override { return gauges_.Read(); }
  [[nodiscard]] bool augments() const override { return true; }
  // Keeps plans of convolutions.
  void KeepIn(const std::string& folder) override;
  StatusOr<std::unique_ptr<InputStage>> MakeInputStage(const InputStageOptions& options) override;
  StatusOr<std::unique_ptr<Weights>> MakeWeights(const graph::Program& training) override;
  StatusOr<std::unique_ptr<Core>> MakeCore(const CoreOptions& options) override;
  Status Tune(const graph::Program& program, const TuneOptions& options, KernelTable* table,
              const TuneReport& report) override;

 private:
  CudaBackend(std::vector<DeviceFacts> devices, uint64_t free_bytes, Replay replay,
              std::string build)
      : devices_(std::move(devices)),
        free_bytes_(free_bytes),
        replay_(replay),
        build_(std::move(build)),
        gauges_(devices_) {}

  const std::vector<DeviceFacts> devices_;  // at least one, all of one model
  const uint64_t free_bytes_;               // of the first, beside what is reserved
  const Replay replay_;
  const std::string build_;
  Gauges gauges_;  // has its own lock
};

}  // namespace ringmaster::cuda
