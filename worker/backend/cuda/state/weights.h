// The parameters of a job on every GPU that one of its cores uses, shared by all cores of the
// worker. Thread-safe, except that Refresh must not run beside anything else.
#pragma once

#include <absl/base/thread_annotations.h>

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "common/mutex.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/device/nccl.h"
#include "worker/backend/cuda/state/device_weights.h"
#include "worker/backend/refresh_input.h"

namespace ringmaster::cuda {

class CudaWeights final : public Weights {
 public:
  using OpenNccl = std::function<StatusOr<Nccl>()>;  // tests have their own

  explicit CudaWeights(
      const graph::Program& training, OpenNccl open_nccl = [] { return Nccl::Open(); });

  // INVALID_ARGUMENT when sizes are not those of the program. Returns when every GPU has the
  // values.
  Status Refresh(const exact::BlockLayout& layout, std::span<const float> parameters,
                 std::span<const float> moving_means,
                 std::span<const float> moving_variances) override;
  Status LoadFrozen(std::span<const float> values) override;
  Status RefreshStatistics(std::span<const float> moving_means,
                           std::span<const float> moving_variances) override;
  [[nodiscard]] uint64_t DeviceBytes(const DeviceStateOptions* state) const override;
  // On every GPU that has values. nullptr, and a warning in the log, where there are several and
  // NCCL does not connect them: what they would have to exchange then goes over the host.
  StatusOr<std::unique_ptr<DeviceState>> MakeState(const DeviceStateOptions& options) override;

  // Those of one GPU, made when first asked for; they live as long as this.
  [[nodiscard]] StatusOr<DeviceWeights*> On(int device);

 private:
  StatusOr<std::unique_ptr<DeviceState>> MakeGroup(const DeviceStateOptions& options)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const RefreshSizes sizes_;
  const OpenNccl open_nccl_;
  std::set<graph::DType> types_;  // that the program reads parameters in

  Mutex mu_;
  std::vector<std::unique_ptr<DeviceWeights>> devices_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::cuda
