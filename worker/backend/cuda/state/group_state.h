// A DeviceState on several GPUs of one host: each has a whole CudaState, to which its cores add and
// which it updates by itself, from the same totals to the same bits. What the host reads are the
// sums of all GPUs, added up by them; so to a ring the host is one worker.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "worker/backend/cuda/device/gpu_group.h"
#include "worker/backend/cuda/state/cuda_state.h"
#include "worker/backend/device_state.h"

namespace ringmaster::cuda {

class GroupState final : public DeviceState {
 public:
  // `weights`, one of each GPU, in the order in which the group was made. RESOURCE_EXHAUSTED when
  // one of the GPUs has no more memory.
  [[nodiscard]] static StatusOr<std::unique_ptr<GroupState>> Create(
      std::unique_ptr<GpuGroup> gpus, std::span<DeviceWeights* const> weights,
      const DeviceStateOptions& options);

  // Does once what a step does, on arrays that hold nothing yet: NCCL connects GPUs when they first
  // need each other, by the kind and the size of what they do, and may find only then that it
  // cannot. Before Load.
  Status Connect();

  Status Load(std::span<const float> parameters, std::span<const std::span<const float>> slots,
              std::span<const int16_t> exponents) override;
  // Of the first GPU; the others have the same.
  Status Store(std::span<float> parameters, std::span<const std::span<float>> slots,
               std::span<int16_t> exponents) override;
  Status Clear(float gradient_scale) override;
  // Moves the bucket's sums to the first GPU and leaves zeros on the others, so that what all of
  // them hold together stays: it may be read again, and added to between.
  Status ReadSums(const exact::Bucket& bucket, std::span<int64_t> sums) override;
  Status WriteTotals(const exact::Bucket& bucket, std::span<const int64_t> totals) override;
  // INTERNAL when two GPUs hold different states, or have added up different totals.
  StatusOr<StepHashes> Apply(SumSource source, uint64_t update) override;
  StatusOr<StepHashes> Skip(SumSource source) override;

 private:
  using States = std::vector<std::unique_ptr<CudaState>>;

  GroupState(const exact::BlockLayout& layout, std::unique_ptr<GpuGroup> gpus, States states)
      : layout_(layout), gpus_(std::move(gpus)), states_(std::move(states)) {}
  [[nodiscard]] CudaState& first() const { return *states_.front(); }
  // Where they lie on each GPU.
  [[nodiscard]] StatusOr<GpuGroup::Arrays> Integers(SumSource source,
                                                    const exact::Bucket& bucket) const;
  // The sums of all GPUs become the totals of each.
  Status AddUpSums();
  // `start` on all GPUs, which then work side by side.
  StatusOr<StepHashes> RunOnAll(SumSource source, const std::function<Status(CudaState&)>& start);
  StatusOr<StepHashes> FinishAll();
  // Of the first GPU and of the one at `index`.
  [[nodiscard]] Status CheckSame(const StepHashes& first_hashes, const StepHashes& others,
                                 size_t index) const;

  const exact::BlockLayout& layout_;
  const std::unique_ptr<GpuGroup> gpus_;
  const States states_;  // by GPU
};

}  // namespace ringmaster::cuda
