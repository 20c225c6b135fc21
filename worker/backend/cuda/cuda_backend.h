// NVIDIA GPUs as a backend: cuDNN for convolutions, cuBLASLt for products, own kernels for the
// rest; N,H,W,C throughout. The backend is thread-safe, a core is used on its own thread.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/backend/cuda/cuda_executable.h"
#include "worker/backend/cuda/device/device.h"

namespace ringmaster::cuda {

class CudaBackend final : public Backend {
 public:
  // UNAVAILABLE, with what is missing, where no GPU can be used. GPUs of another model than the
  // first are left alone: one worker has one numerics class. `build`: which one this is, of what is
  // kept for another process.
  [[nodiscard]] static StatusOr<std::unique_ptr<CudaBackend>> Create(
      Replay replay = Replay::kGraph, std::string build = "", const BackendOptions& options = {});

  // Host threads compute nothing that enters the result, so their number is 1 for everybody.
  [[nodiscard]] v1::NumericsClass numerics_class(uint32_t threads_per_core) const override;
  // reserved: what CUDA and its libraries take of a GPU (and other processes, where there are any),
  // measured when the backend was made. memory_per_core: all of a GPU but that.
  [[nodiscard]] v1::DeviceProfile device_profile() const override;
  [[nodiscard]] uint32_t devices() const override { return static_cast<uint32_t>(devices_.size()); }
  [[nodiscard]] std::vector<v1::DeviceFigures> figures() override { return gauges_.Read(); }
  [[nodiscard]] bool augments() const override { return true; }
  [[nodiscard]] Status lost() const override { return Lost(); }
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
  const uint64_t free_bytes_;               // of that which has least, beside what is reserved
  const Replay replay_;
  const std::string build_;
  Gauges gauges_;  // has its own lock
};

// A core on a GPU: the thread that made it, the libraries' handles, two streams and its memory on
// both sides. Used on that thread only. Several cores may share a GPU: while the gradients of one
// are added up on the host, the other one computes.
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
  // Page-locked, for results and gradients on their way.
  [[nodiscard]] uint64_t host_bytes() const override { return lane_.host.size(); }

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
