#include "worker/backend/cuda/weights.h"

#include "worker/backend/cuda/cuda_state.h"

namespace ringmaster::cuda {

CudaWeights::CudaWeights(const graph::Program& training) : sizes_(training) {
  for (const graph::Parameter& parameter : training.parameters) {
    types_.insert(training.graph.value(parameter.value).dtype);
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
  return state == nullptr ? weights : weights + CudaState::DeviceBytes(*state);
}

StatusOr<std::unique_ptr<DeviceState>> CudaWeights::MakeState(const DeviceStateOptions& options) {
  MutexLock lock(mu_);
  if (devices_.size() != 1) return nullptr;
  RING_RETURN_IF_ERROR(sizes_.CheckLayout(*options.layout));
  return CudaState::Create(*devices_.front(), options);
}

}  // namespace ringmaster::cuda
