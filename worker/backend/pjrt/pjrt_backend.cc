#include "worker/backend/pjrt/pjrt_backend.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "common/text.h"
#include "worker/backend/pjrt/compute_id.h"
#include "worker/backend/pjrt/pjrt_core.h"
#include "worker/backend/pjrt/pjrt_weights.h"
#include "worker/backend/pjrt/tpus.h"

namespace ringmaster::pjrt {
namespace {

constexpr char kNoFraction[] =
    "--memory-fraction: NVIDIA's plugin alone is known to give a part of its memory";

// Of the plugin's attributes those that say what it compiles, and how.
bool MattersToBits(const std::string& attribute) {
  return attribute.starts_with("stablehlo") || attribute.starts_with("xla");
}

}  // namespace

PjrtBackend::PjrtBackend(std::unique_ptr<PluginHost> host, const Platform& platform)
    : host_(std::move(host)), platform_(platform) {
  const std::vector<DeviceFacts>& devices = host_->facts().devices;
  for (uint32_t i = 0; i < devices.size(); ++i) {
    if (devices[i].kind == devices[0].kind) devices_.push_back(i);
  }
}

StatusOr<std::unique_ptr<PjrtBackend>> PjrtBackend::Create(const PluginOptions& options) {
  auto started = PluginHost::Start(options);
  if (absl::IsInvalidArgument(started.status()) && options.memory_fraction > 0) {
    return Annotate(started.status(), kNoFraction);
  }
  RING_ASSIGN_OR_RETURN(std::unique_ptr<PluginHost> host, std::move(started));
  RING_ASSIGN_OR_RETURN(const Platform platform, FindPlatform(host->facts().platform));
  if (options.memory_fraction > 0 && !platform.takes_memory_fraction) {
    return InvalidArgument("{}, and this one is of platform {}", kNoFraction, platform.name);
  }
  std::unique_ptr<PjrtBackend> backend(new PjrtBackend(std::move(host), platform));
  const PluginFacts& facts = backend->host_->facts();
  spdlog::info("plugin {}: platform={} api={}.{} devices={} kind={} version={}", options.path,
               facts.platform, facts.major, facts.minor, backend->devices_.size(),
               facts.devices[0].kind, OneLine(facts.platform_version));
  return backend;
}

v1::NumericsClass PjrtBackend::numerics_class(uint32_t /*threads_per_core*/) const {
  const PluginFacts& plugin = host_->facts();
  v1::NumericsClass numerics;
  numerics.set_backend("pjrt");
  numerics.set_device_model(OneLine(fmt::format("{}, {}", plugin.platform, facts(0).kind)));
  numerics.set_threads_per_core(1);
  auto& libraries = *numerics.mutable_libraries();
  libraries["plugin"] = OneLine(plugin.platform_version);
  libraries["pjrt_api"] = fmt::format("{}.{}", plugin.major, plugin.minor);
  libraries["pjrt_emitter"] = kPjrtComputeId;
  for (const PluginAttribute& attribute : plugin.attributes) {
    if (MattersToBits(attribute.name)) libraries[attribute.name] = OneLine(attribute.value);
  }
  return numerics;
}

v1::DeviceProfile PjrtBackend::device_profile() const {
  uint64_t memory = facts(0).memory_limit;
  for (size_t i = 1; i < devices_.size(); ++i) memory = std::min(memory, facts(i).memory_limit);
  const TpuWorker* const tpu = FindTpuWorker(facts(0).kind);
  if (memory == 0 && tpu != nullptr) memory = tpu->hbm;  // a plugin need not tell
  v1::DeviceProfile profile;
  profile.set_kind("pjrt");
  profile.set_memory_per_core(memory);
  profile.set_alignment(kAlignment);
  return profile;
}

StatusOr<std::unique_ptr<Weights>> PjrtBackend::MakeWeights(const graph::Program& training) {
  RING_ASSIGN_OR_RETURN(std::unique_ptr<Weights> weights,
                        PjrtWeights::Create(training, next_weights_++));
  return weights;
}

StatusOr<std::unique_ptr<Core>> PjrtBackend::MakeCore(const CoreOptions& options) {
  if (options.device >= devices_.size()) {
    return InvalidArgument("{}: there is no device {}; the plugin has {} that can be used",
                           options.name, options.device, devices_.size());
  }
  RING_ASSIGN_OR_RETURN(std::unique_ptr<Core> core,
                        PjrtCore::Create(options, devices_[options.device], platform_, *host_));
  return core;
}

}  // namespace ringmaster::pjrt
