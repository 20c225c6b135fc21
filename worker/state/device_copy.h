// Who holds the newest S(k) where a backend keeps parameters, slots and units itself: after an
// update the device does, and the host's State is behind in these until somebody wants to read
// them. Owned by the job; under its state_mu. Steps,
// statistics, metrics and digest are always the host's.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "common/status.h"
#include "worker/backend/device_state.h"
#include "worker/state/state.h"

namespace ringmaster::worker {

class DeviceCopy {
 public:
  explicit DeviceCopy(std::unique_ptr<DeviceState> device) : device_(std::move(device)) {}

  // Sums and totals, on threads as DeviceState allows.
  [[nodiscard]] DeviceState* device() const { return device_.get(); }

  // The host's state is the newest, and the device gets it.
  Status Load(const State& state);
  // Likewise, but with other parameters, which are there until Load: nothing may be applied.
  Status Show(const State& state, std::span<const float> parameters);
  // Makes the host's state the newest, too.
  Status Store(State* state);

  // The update, or none, of the step in hand on the device; the host's state is behind then.
  StatusOr<StepHashes> Apply(SumSource source, uint64_t update);
  StatusOr<StepHashes> Skip(SumSource source);

 private:
  const std::unique_ptr<DeviceState> device_;
  bool host_is_behind_ = false;
};

}  // namespace ringmaster::worker
