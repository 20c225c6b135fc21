#include "worker/backend/cpu/cpu_backend.h"

#include <utility>

#include "worker/backend/cpu/cpu_core.h"
#include "worker/backend/cpu/numerics.h"
#include "worker/backend/cpu/weights.h"

namespace ringmaster::cpu {

StatusOr<std::unique_ptr<CpuBackend>> CpuBackend::Create(Bf16Arithmetic bf16) {
  RING_ASSIGN_OR_RETURN(Device device, Device::Create(bf16));
  return std::unique_ptr<CpuBackend>(new CpuBackend(std::move(device)));
}

v1::NumericsClass CpuBackend::numerics_class(uint32_t threads_per_core) const {
  v1::NumericsClass numerics;
  numerics.set_backend("cpu");
  numerics.set_device_model(CpuModelName());
  for (uint64_t bytes : CacheBytes()) numerics.add_cache_bytes(bytes);
  numerics.set_instruction_set(device_.instruction_set);
  numerics.set_threads_per_core(threads_per_core);
  for (const auto& [library, version] : ComputeLibraries()) {
    (*numerics.mutable_libraries())[library] = version;
  }
  return numerics;
}

v1::DeviceProfile CpuBackend::device_profile() const {
  v1::DeviceProfile profile;
  profile.set_kind("cpu");
  profile.set_alignment(kAlignment);
  return profile;
}

StatusOr<std::unique_ptr<Weights>> CpuBackend::MakeWeights(const graph::Program& training) {
  return std::make_unique<CpuWeights>(training, device_);
}

StatusOr<std::unique_ptr<Core>> CpuBackend::MakeCore(const CoreOptions& options) {
  return CpuCore::Create(options, device_);
}

}  // namespace ringmaster::cpu
