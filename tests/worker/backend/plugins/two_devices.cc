// A backend without kernels and with two devices.
#include "worker/backend/plugin_entry.h"

namespace ringmaster {
namespace {

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
    std::vector<v1::DeviceFigures> devices(2);
    devices[1].set_temperature(21);
    return devices;
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

ringmaster::Backend* ringmaster_make_backend(ringmaster::Status*) {
  return new ringmaster::AbacusBackend();
}
