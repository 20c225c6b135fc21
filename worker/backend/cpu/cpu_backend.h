// The CPU as a backend: oneDNN for convolutions and matrix products, own loops for the rest,
// activations in N,H,W,C throughout. Thread-safe.
#pragma once

#include <memory>

#include "worker/backend/backend.h"
#include "worker/backend/cpu/device.h"

namespace ringmaster::cpu {

class CpuBackend final : public Backend {
 public:
  // kNative falls back to kEmulated where the CPU (or ONEDNN_MAX_CPU_ISA) lacks AVX-512 with BF16;
  // the numerics class tells them apart.
  [[nodiscard]] static StatusOr<std::unique_ptr<CpuBackend>> Create(
      Bf16Arithmetic bf16 = Bf16Arithmetic::kNative);

  [[nodiscard]] v1::NumericsClass numerics_class(uint32_t threads_per_core) const override;
  [[nodiscard]] v1::DeviceProfile device_profile() const override;
  StatusOr<std::unique_ptr<Weights>> MakeWeights(const graph::Program& training) override;
  StatusOr<std::unique_ptr<Core>> MakeCore(const CoreOptions& options) override;

 private:
  explicit CpuBackend(Device device) : device_(std::move(device)) {}

  const Device device_;
};

}  // namespace ringmaster::cpu
