// Devices behind a PJRT plugin (TPU hosts by libtpu, NVIDIA ones by the CUDA plugin of JAX) as a
// backend: programs are emitted as StableHLO and compiled by the plugin, which runs in a process of
// its own (plugin_host.h). Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/backend/pjrt/platform.h"
#include "worker/backend/pjrt/plugin_host.h"

namespace ringmaster::pjrt {

class PjrtBackend final : public Backend {
 public:
  // As PluginHost::Start. FAILED_PRECONDITION, too: nothing is known of the plugin's platform;
  // INVALID_ARGUMENT: it has no use for `memory_fraction`.
  [[nodiscard]] static StatusOr<std::unique_ptr<PjrtBackend>> Create(const PluginOptions& options);

  [[nodiscard]] v1::NumericsClass numerics_class(uint32_t threads_per_core) const override;
  [[nodiscard]] v1::DeviceProfile device_profile() const override;
  [[nodiscard]] uint32_t devices() const override { return static_cast<uint32_t>(devices_.size()); }
  // To compile takes seconds to minutes: one program serves every shard of a job.
  [[nodiscard]] bool pads() const override { return true; }
  [[nodiscard]] bool exclusive() const override {
    return platform_.processes == Platform::Processes::kOne;
  }
  StatusOr<std::unique_ptr<Weights>> MakeWeights(const graph::Program& training) override;
  StatusOr<std::unique_ptr<Core>> MakeCore(const CoreOptions& options) override;

 private:
  PjrtBackend(std::unique_ptr<PluginHost> host, const Platform& platform);

  [[nodiscard]] const DeviceFacts& facts(size_t device) const {
    return host_->facts().devices[devices_[device]];
  }

  const std::unique_ptr<PluginHost> host_;
  const Platform platform_;
  std::vector<uint32_t> devices_;  // places in the plugin's facts: those of the first one's kind
  std::atomic<uint64_t> next_weights_ = 1;
};

}  // namespace ringmaster::pjrt
