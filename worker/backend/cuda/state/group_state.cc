#include "worker/backend/cuda/state/group_state.h"

#include <fmt/ranges.h>

#include <utility>

namespace ringmaster::cuda {

StatusOr<std::unique_ptr<GroupState>> GroupState::Create(std::unique_ptr<GpuGroup> gpus,
                                                         std::span<DeviceWeights* const> weights,
                                                         const DeviceStateOptions& options) {
  States states;
  for (DeviceWeights* const each : weights) {
    RING_ASSIGN_OR_RETURN(states.emplace_back(), CudaState::Create(*each, options));
  }
  return std::unique_ptr<GroupState>(
      new GroupState(*options.layout, std::move(gpus), std::move(states)));
}

Status GroupState::Connect() {
  const exact::Bucket whole{0, layout_.block_count()};
  RING_RETURN_IF_ERROR(AddUpSums());
  RING_ASSIGN_OR_RETURN(const auto sums, Integers(SumSource::kOwn, whole));
  RING_RETURN_IF_ERROR(gpus_->MoveToFirst(sums, layout_.arena_elements()));
  RING_ASSIGN_OR_RETURN(const auto totals, Integers(SumSource::kRing, whole));
  return gpus_->CopyFromFirst(totals, layout_.arena_elements());
}

Status GroupState::Load(std::span<const float> parameters,
                        std::span<const std::span<const float>> slots,
                        std::span<const int16_t> exponents) {
  for (const auto& state : states_) {
    RING_RETURN_IF_ERROR(state->Load(parameters, slots, exponents));
  }
  return absl::OkStatus();
}

Status GroupState::Store(std::span<float> parameters, std::span<const std::span<float>> slots,
                         std::span<int16_t> exponents) {
  return first().Store(parameters, slots, exponents);
}

Status GroupState::Clear(float gradient_scale) {
  for (const auto& state : states_) RING_RETURN_IF_ERROR(state->Clear(gradient_scale));
  return absl::OkStatus();
}

StatusOr<GpuGroup::Arrays> GroupState::Integers(SumSource source,
                                                const exact::Bucket& bucket) const {
  GpuGroup::Arrays arrays;
  for (const auto& state : states_) {
    RING_ASSIGN_OR_RETURN(arrays.emplace_back(), state->Integers(source, bucket));
  }
  return arrays;
}

Status GroupState::ReadSums(const exact::Bucket& bucket, std::span<int64_t> sums) {
  RING_ASSIGN_OR_RETURN(const auto arrays, Integers(SumSource::kOwn, bucket));
  RING_RETURN_IF_ERROR(gpus_->MoveToFirst(arrays, bucket.block_count * exact::kBlockElements));
  return first().ReadSums(bucket, sums);
}

Status GroupState::WriteTotals(const exact::Bucket& bucket, std::span<const int64_t> totals) {
  RING_ASSIGN_OR_RETURN(const auto arrays, Integers(SumSource::kRing, bucket));
  RING_RETURN_IF_ERROR(first().WriteTotals(bucket, totals));
  return gpus_->CopyFromFirst(arrays, totals.size());
}

Status GroupState::AddUpSums() {
  const exact::Bucket whole{0, layout_.block_count()};
  RING_ASSIGN_OR_RETURN(const auto sums, Integers(SumSource::kOwn, whole));
  RING_ASSIGN_OR_RETURN(const auto totals, Integers(SumSource::kRing, whole));
  return gpus_->AddUp(sums, totals, layout_.arena_elements());
}

StatusOr<StepHashes> GroupState::Apply(SumSource source, uint64_t update) {
  return RunOnAll(
      source, [update](CudaState& state) { return state.StartApply(SumSource::kRing, update); });
}

StatusOr<StepHashes> GroupState::Skip(SumSource source) {
  return RunOnAll(source, [](CudaState& state) { return state.StartSkip(SumSource::kRing); });
}

StatusOr<StepHashes> GroupState::RunOnAll(SumSource source,
                                          const std::function<Status(CudaState&)>& start) {
  if (source == SumSource::kOwn) RING_RETURN_IF_ERROR(AddUpSums());
  for (const auto& state : states_) RING_RETURN_IF_ERROR(start(*state));
  return FinishAll();
}

StatusOr<StepHashes> GroupState::FinishAll() {
  RING_ASSIGN_OR_RETURN(StepHashes hashes, first().Finish());
  for (size_t i = 1; i < states_.size(); ++i) {
    RING_ASSIGN_OR_RETURN(const StepHashes others, states_[i]->Finish());
    RING_RETURN_IF_ERROR(CheckSame(hashes, others, i));
  }
  return hashes;
}

Status GroupState::CheckSame(const StepHashes& first_hashes, const StepHashes& others,
                             size_t index) const {
  const bool same_totals = others.totals == first_hashes.totals;
  const bool same_read = others.read == first_hashes.read;
  if (same_read && same_totals && others.written == first_hashes.written) return absl::OkStatus();
  if (same_read && !same_totals) {
    return Internal(
        "GPUs {} and {} hold different totals: digests {:02x} and {:02x}, expected the same; the "
        "update is lost. Try NCCL_P2P_DISABLE=1, and memory tests of the GPUs",
        first().device(), states_[index]->device(), fmt::join(first_hashes.totals.bytes(), ""),
        fmt::join(others.totals.bytes(), ""));
  }
  return Internal(
      "GPUs {} and {} hold different states, expected the same; test the memory of the GPUs",
      first().device(), states_[index]->device());
}

}  // namespace ringmaster::cuda
