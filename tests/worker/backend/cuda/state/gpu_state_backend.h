// A worker's backend whose gradients another backend's cores compute, and whose state the CUDA
// backend keeps, on the late runtime: that worker is of the other one's numerics class, and beside
// workers of the other backend alone it shows what the place of a state changes. Thread-safe as a
// real backend: the runtime and the kernels' emulator are one thread's at a time, of all of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "worker/backend/backend.h"

namespace ringmaster::testing {

// How often a bucket's sums were read for a ring, by whether all of them were int32.
struct SumsRead {
  size_t narrow = 0, wide = 0;
};

class GpuStateBackend final : public Backend {
 public:
  // `cores` outlives it. `gpu`: the number of one that no other worker of the test uses.
  GpuStateBackend(Backend* cores, int gpu) : cores_(cores), gpu_(gpu) {}

  [[nodiscard]] v1::NumericsClass numerics_class(uint32_t threads_per_core) const override {
    return cores_->numerics_class(threads_per_core);
  }
  [[nodiscard]] v1::DeviceProfile device_profile() const override {
    return cores_->device_profile();
  }
  [[nodiscard]] bool augments() const override { return cores_->augments(); }
  [[nodiscard]] bool pads() const override { return cores_->pads(); }
  StatusOr<std::unique_ptr<InputStage>> MakeInputStage(const InputStageOptions& options) override {
    return cores_->MakeInputStage(options);
  }
  StatusOr<std::unique_ptr<Weights>> MakeWeights(const graph::Program& training) override;
  StatusOr<std::unique_ptr<Core>> MakeCore(const CoreOptions& options) override;

  // The parameters in the GPU's memory, in arena layout, of the job that began last: while its
  // trainer lives and no run is on.
  [[nodiscard]] std::span<float> parameters() const;
  // Of all its jobs. No run is on.
  [[nodiscard]] SumsRead sums_read() const { return sums_read_; }

 private:
  class State;
  class OwnWeights;
  class OwnExecutable;
  class OwnCore;

  Backend* const cores_;
  const int gpu_;
  SumsRead sums_read_;  // with the runtime held
  OwnWeights* newest_ = nullptr;
};

}  // namespace ringmaster::testing
