// A core whose programs run on one device of the plugin: the thread that made it, its lane into the
// plugin's process, and its part of the device's memory. Used on that thread only.
#pragma once

#include <memory>
#include <thread>

#include "worker/backend/backend.h"
#include "worker/backend/pjrt/lane.h"
#include "worker/backend/pjrt/pjrt_executable.h"
#include "worker/backend/pjrt/platform.h"
#include "worker/backend/pjrt/plugin_host.h"

namespace ringmaster::pjrt {

class PjrtCore final : public Core {
 public:
  // `device`: its place in the plugin's facts. `host` must outlive it and its executables.
  [[nodiscard]] static StatusOr<std::unique_ptr<PjrtCore>> Create(const CoreOptions& options,
                                                                  uint32_t device,
                                                                  const Platform& platform,
                                                                  PluginHost& host);

  StatusOr<std::unique_ptr<Executable>> Bind(const graph::Program& program, Weights& weights,
                                             const graph::Augmenter* augmenter) override;
  // Of a TPU an estimate from above; of others UNIMPLEMENTED, which says what to do.
  StatusOr<CoreLayout> Plan(const graph::Program& program, Weights& weights) override;
  // Of the device, beside the weights.
  [[nodiscard]] uint64_t memory_bytes() const override { return largest_; }
  [[nodiscard]] uint64_t host_bytes() const override { return lane_->memory_bytes(); }

 private:
  PjrtCore(CoreOptions options, uint32_t device, const Platform& platform, PluginHost& host);

  [[nodiscard]] Status CheckFits(const PjrtExecutable& executable) const;

  const CoreOptions options_;
  const uint32_t device_;
  const Platform platform_;
  PluginHost& host_;
  const std::thread::id thread_;
  const std::shared_ptr<Lane> lane_;  // executables have it, too
  uint64_t largest_ = 0;              // of the programs bound so far
};

}  // namespace ringmaster::pjrt
