#include "worker/backend/cuda/state/weights.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "worker/backend/cuda/device/gpu_group.h"
#include "worker/backend/cuda/state/cuda_state.h"
#include "worker/backend/cuda/state/group_state.h"

namespace ringmaster::cuda {

CudaWeights::CudaWeights(const graph::Program& training, OpenNccl open_nccl)
    : sizes_(training), open_nccl_(std::move(open_nccl)) {
  for (const auto* parameters : {&training.parameters, &training.frozen}) {
    for (const graph::Parameter& parameter : *parameters) {
      types_.insert(training.graph.value(parameter.value).dtype);
    }
  }
}

StatusOr<DeviceWeights*> CudaWeights::On(int device) {
  MutexLock lock(mu_);
  for (const auto& weights : devices_) {
    if (weights->device() == device) return weights.get();
  }
  RING_ASSIGN_OR_RETURN(devices_.emplace_back(), DeviceWeights::Create(sizes_, device));
  return devices_.back().get();
}

Status CudaWeights::Refresh(const exact::BlockLayout& layout, std::span<const float> parameters,
                            std::span<const float> moving_means,
                            std::span<const float> moving_variances) {
  RING_RETURN_IF_ERROR(sizes_.Check(layout, parameters, moving_means, moving_variances));
  MutexLock lock(mu_);
  for (const auto& weights : devices_) {
    RING_RETURN_IF_ERROR(weights->StartFilling(layout, parameters));
    RING_RETURN_IF_ERROR(weights->StartFillingStatistics(moving_means, moving_variances));
  }
  for (const auto& weights : devices_) RING_RETURN_IF_ERROR(weights->FinishFilling());
  return absl::OkStatus();
}

Status CudaWeights::LoadFrozen(std::span<const float> values) {
  RING_RETURN_IF_ERROR(sizes_.CheckFrozen(values));
  MutexLock lock(mu_);
  for (const auto& weights : devices_) RING_RETURN_IF_ERROR(weights->StartFillingFrozen(values));
  for (const auto& weights : devices_) RING_RETURN_IF_ERROR(weights->FinishFilling());
  return absl::OkStatus();
}

Status CudaWeights::RefreshStatistics(std::span<const float> moving_means,
                                      std::span<const float> moving_variances) {
  RING_RETURN_IF_ERROR(sizes_.CheckStatistics(moving_means, moving_variances));
  MutexLock lock(mu_);
  for (const auto& weights : devices_) {
    RING_RETURN_IF_ERROR(weights->StartFillingStatistics(moving_means, moving_variances));
  }
  for (const auto& weights : devices_) RING_RETURN_IF_ERROR(weights->FinishFilling());
  return absl::OkStatus();
}

uint64_t CudaWeights::DeviceBytes(const DeviceStateOptions* state) const {
  const uint64_t weights = DeviceWeights::DeviceBytes(sizes_, types_);
  const bool none = state == nullptr || !CudaState::Updates(*state);
  return none ? weights : weights + CudaState::DeviceBytes(*state);
}

StatusOr<std::unique_ptr<DeviceState>> CudaWeights::MakeState(const DeviceStateOptions& options) {
  MutexLock lock(mu_);
  if (devices_.empty()) return nullptr;
  RING_RETURN_IF_ERROR(sizes_.CheckLayout(*options.layout));
  if (!CudaState::Updates(options)) {
    spdlog::warn(
        "the state is updated on the host, which is slower: no kernel takes the norms that the "
        "optimizer needs (clip.global_norm, clip.tensor_norm, lars, lamb)");
    return nullptr;
  }
  if (devices_.size() > 1) return MakeGroup(options);
  return CudaState::Create(*devices_.front(), options);
}

// In the order of their numbers: cores bind in any.
StatusOr<std::unique_ptr<DeviceState>> CudaWeights::MakeGroup(const DeviceStateOptions& options) {
  std::vector<DeviceWeights*> members;
  for (const auto& weights : devices_) members.push_back(weights.get());
  std::ranges::sort(members, {}, &DeviceWeights::device);
  std::vector<int> devices;
  for (const DeviceWeights* weights : members) devices.push_back(weights->device());
  const auto without = [&](const Status& why) {
    spdlog::warn("GPUs {} add up their gradients on the host, which is slower: {}",
                 fmt::join(devices, ", "), Message(why));
    return nullptr;
  };
  const StatusOr<Nccl> nccl = open_nccl_();
  if (!nccl.ok()) return without(nccl.status());
  auto gpus = GpuGroup::Create(*nccl, devices);
  if (!gpus.ok()) return without(gpus.status());
  RING_ASSIGN_OR_RETURN(auto state, GroupState::Create(*std::move(gpus), members, options));
  const Status connected = state->Connect();
  if (!connected.ok()) return without(connected);
  spdlog::info("GPUs {} add up their gradients with NCCL", fmt::join(devices, ", "));
  return state;
}

}  // namespace ringmaster::cuda
