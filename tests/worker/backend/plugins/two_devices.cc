// A backend without kernels and with two devices, which hang when they are asked for figures where
// RINGMASTER_TEST_ABACUS is set.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "worker/backend/plugin_entry.h"

namespace ringmaster {
namespace {

[[noreturn]] void Hang() {
  std::fputs("the abacus hangs\n", stderr);
  while (true) pause();
}

class AbacusBackend final : public Backend {
 public:
  [[nodiscard]] v1::NumericsClass numerics_class(uint32_t threads_per_core) const override {
    v1::NumericsClass numerics;
    numerics.set_backend("abacus");
    numerics.set_threads_per_core(threads_per_core);
    return numerics;
  }
  [[nodiscard]] v1::DeviceProfile device_profile() const override {
    v1::DeviceProfile profile;
    profile.set_kind("abacus");
    profile.set_memory_per_core(80);
    return profile;
  }
  [[nodiscard]] uint32_t devices() const override { return 2; }
  [[nodiscard]] std::vector<v1::DeviceFigures> figures() override {
    if (std::getenv("RINGMASTER_TEST_ABACUS") != nullptr) Hang();
    std::vector<v1::DeviceFigures> devices(2);
    for (uint32_t i = 0; i < 2; ++i) {
      devices[i].set_kind("abacus");
      devices[i].set_index(i);
      devices[i].set_name("Abacus " + std::to_string(i));
      devices[i].set_memory_used(3);
      devices[i].set_memory_total(80);
      devices[i].set_temperature(21);
    }
    return devices;
  }
  [[nodiscard]] bool augments() const override { return true; }
  StatusOr<std::unique_ptr<InputStage>> MakeInputStage(const InputStageOptions& options) override {
    return InvalidArgument("no slot of {} bytes on device {}", options.slot_bytes, options.device);
  }
  StatusOr<std::unique_ptr<Weights>> MakeWeights(const graph::Program&) override {
    return Internal("an abacus has no weights");
  }
  StatusOr<std::unique_ptr<Core>> MakeCore(const CoreOptions& options) override {
    return InvalidArgument("no core {} on device {}", options.name, options.device);
  }
};

}  // namespace
}  // namespace ringmaster

const char* ringmaster_backend_compute_id() { return "beads of wood"; }

ringmaster::Backend* ringmaster_make_backend(const ringmaster::BackendOptions&,
                                             ringmaster::Status*) {
  return new ringmaster::AbacusBackend();
}
