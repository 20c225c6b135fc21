#include "worker/backend/cuda/state/weights.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "worker/backend/core_layout.h"
#include "worker/backend/cuda/device/gpu_group.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/kernels/elementwise.h"
#include "worker/backend/cuda/state/cuda_state.h"
#include "worker/backend/cuda/state/group_state.h"

namespace ringmaster::cuda {
namespace {

using graph::DType;

constexpr size_t kFloatsAligned = kAlignment / sizeof(float);

// Tensors begin at multiples of a block, so in every type they are aligned.
static_assert(exact::kBlockElements * sizeof(__half) % kAlignment == 0);

size_t ArenaElements(const RefreshSizes& sizes) {
  size_t elements = 0;
  for (const uint64_t tensor : sizes.parameters) {
    elements += AlignUp(tensor, exact::kBlockElements);
  }
  return elements;
}

}  // namespace

uint64_t DeviceWeights::DeviceBytes(const RefreshSizes& sizes,
                                    const std::set<graph::DType>& types) {
  uint64_t element = sizeof(float);
  for (const DType type : types) element += type == DType::kFloat32 ? 0 : graph::ByteSize(type);
  uint64_t statistics = 0;
  for (const uint64_t channels : sizes.channels) statistics += AlignUp(channels, kFloatsAligned);
  return (ArenaElements(sizes) + sizes.frozen_elements) * element + 2 * statistics * sizeof(float);
}

DeviceWeights::DeviceWeights(const RefreshSizes& sizes, int device)
    : sizes_(sizes),
      device_(device),
      trained_(ArenaElements(sizes)),
      elements_(trained_ + sizes.frozen_elements),
      has_frozen_(sizes.frozen_elements == 0),
      channel_offsets_({0}),
      has_statistics_(sizes.channels.empty()) {
  for (const uint64_t channels : sizes.channels) {
    channel_offsets_.push_back(channel_offsets_.back() + AlignUp(channels, kFloatsAligned));
  }
  padded_.resize(2 * channel_offsets_.back());
}

StatusOr<std::unique_ptr<DeviceWeights>> DeviceWeights::Create(const RefreshSizes& sizes,
                                                               int device) {
  std::unique_ptr<DeviceWeights> weights(new DeviceWeights(sizes, device));
  RING_RETURN_IF_ERROR(weights->MakeCurrent());
  RING_RETURN_IF_ERROR(
      Annotate(weights->copy(DType::kFloat32).Grow(weights->elements_ * sizeof(float)), "weights"));
  RING_RETURN_IF_ERROR(Annotate(
      weights->statistics_.Grow(2 * weights->channel_offsets_.back() * sizeof(float)), "weights"));
  RING_ASSIGN_OR_RETURN(weights->stream_, MakeStream());
  RING_ASSIGN_OR_RETURN(weights->done_, MakeEvent());
  RING_ASSIGN_OR_RETURN(weights->uploader_, Uploader::Create(weights->stream_.get()));
  return weights;
}

Status DeviceWeights::MakeCurrent() const {
  return FromCuda(cudaSetDevice(device_), fmt::format("weights: GPU {}", device_));
}

Status DeviceWeights::Provide(DType dtype) {
  MutexLock lock(mu_);
  if (copy(dtype).size() > 0) return absl::OkStatus();
  RING_RETURN_IF_ERROR(Annotate(copy(dtype).Grow(elements_ * graph::ByteSize(dtype)), "weights"));
  if (offsets_.empty()) return absl::OkStatus();
  RING_RETURN_IF_ERROR(Narrow(dtype));
  return FinishFilling();
}

Status DeviceWeights::Narrow(DType dtype) {
  return WithStorage(dtype, [&]<typename T>(T) {
    return FromCuda(LaunchCast(reinterpret_cast<const float*>(copy(DType::kFloat32).data()),
                               reinterpret_cast<T*>(copy(dtype).data()),
                               static_cast<int64_t>(elements_), stream_.get()),
                    "cast of weights");
  });
}

Status DeviceWeights::Ready() const {
  if (!offsets_.empty() && has_statistics_ && has_frozen_) return absl::OkStatus();
  return FailedPrecondition(
      "weights: no {} yet; Refresh, or a state's Load and RefreshStatistics, comes before the "
      "first "
      "run",
      offsets_.empty()  ? "values"
      : has_statistics_ ? "frozen parameters"
                        : "moving statistics");
}

const void* DeviceWeights::parameter(uint32_t canonical, DType dtype) const {
  return copies_[static_cast<size_t>(dtype)].data() + offsets_[canonical] * graph::ByteSize(dtype);
}

const float* DeviceWeights::moving_mean(size_t normalization) const {
  return reinterpret_cast<const float*>(statistics_.data()) + channel_offsets_[normalization];
}

const float* DeviceWeights::moving_variance(size_t normalization) const {
  return moving_mean(normalization) + channel_offsets_.back();
}

Status DeviceWeights::SetOffsets(const exact::BlockLayout& layout) {
  std::vector<size_t> offsets;
  for (uint32_t p = 0; p < sizes_.parameters.size(); ++p) {
    offsets.push_back(layout.tensor(p).offset());
  }
  for (const size_t offset : sizes_.frozen_offsets) offsets.push_back(trained_ + offset);
  if (!offsets_.empty() && offsets != offsets_) {
    return InvalidArgument(
        "weights: the parameters lie in another order than at the first Refresh, and kernels have "
        "their addresses; make new weights");
  }
  offsets_ = std::move(offsets);
  return absl::OkStatus();
}

Status DeviceWeights::StartFilling(const exact::BlockLayout& layout,
                                   std::span<const float> parameters) {
  RING_RETURN_IF_ERROR(MakeCurrent());
  RING_RETURN_IF_ERROR(SetOffsets(layout));
  RING_RETURN_IF_ERROR(
      uploader_->Copy(parameters.data(), copy(DType::kFloat32).data(), trained_ * sizeof(float)));
  return NarrowAll();
}

Status DeviceWeights::StartFillingFrozen(std::span<const float> values) {
  if (values.empty()) return absl::OkStatus();
  RING_RETURN_IF_ERROR(MakeCurrent());
  has_frozen_ = true;
  RING_RETURN_IF_ERROR(uploader_->Copy(
      values.data(), copy(DType::kFloat32).data() + trained_ * sizeof(float), values.size_bytes()));
  return NarrowAll();
}

Status DeviceWeights::NarrowAll() {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    if (copy(dtype).size() > 0) RING_RETURN_IF_ERROR(Narrow(dtype));
  }
  return absl::OkStatus();
}

void DeviceWeights::SetStatistics(std::span<const float> moving_means,
                                  std::span<const float> moving_variances) {
  MutexLock lock(mu_);
  const size_t variances = channel_offsets_.back();
  size_t from = 0;
  for (size_t i = 0; i < sizes_.channels.size(); ++i) {
    const size_t channels = sizes_.channels[i];
    std::ranges::copy(moving_means.subspan(from, channels), padded_.begin() + channel_offsets_[i]);
    std::ranges::copy(moving_variances.subspan(from, channels),
                      padded_.begin() + variances + channel_offsets_[i]);
    from += channels;
  }
  has_statistics_ = true;
  brought_ = false;
}

Status DeviceWeights::BringStatistics() {
  MutexLock lock(mu_);
  if (brought_) return absl::OkStatus();
  RING_RETURN_IF_ERROR(
      uploader_->Copy(padded_.data(), statistics_.data(), padded_.size() * sizeof(float)));
  RING_RETURN_IF_ERROR(FinishFilling());
  brought_ = true;
  return absl::OkStatus();
}

Status DeviceWeights::FinishFilling() { return WaitFor(stream_.get(), done_.get(), "weights"); }

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
    weights->SetStatistics(moving_means, moving_variances);
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
  for (const auto& weights : devices_) weights->SetStatistics(moving_means, moving_variances);
  return absl::OkStatus();
}

uint64_t CudaWeights::DeviceBytes(const DeviceStateOptions* state) const {
  const uint64_t weights = DeviceWeights::DeviceBytes(sizes_, types_);
  return state == nullptr ? weights : weights + CudaState::DeviceBytes(*state);
}

StatusOr<std::unique_ptr<DeviceState>> CudaWeights::MakeState(const DeviceStateOptions& options) {
  MutexLock lock(mu_);
  if (devices_.empty()) return nullptr;
  RING_RETURN_IF_ERROR(sizes_.CheckLayout(*options.layout));
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
