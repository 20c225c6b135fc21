// A DeviceState on one GPU: sums, totals, optimizer slots and exponents in its memory; the
// parameters are the weights' own. Every call makes the GPU current, and all but Clear have ended
// when they return: what Clear puts on the state's stream comes before its update there, and before
// what others do with the sums behind the event `cleared`. Memory is taken at the beginning alone,
// and addresses never change.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "common/graph/update/optimizer.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernels/state.h"
#include "worker/backend/cuda/state/device_update.h"
#include "worker/backend/cuda/state/sum_transfer.h"
#include "worker/backend/cuda/state/weights.h"
#include "worker/backend/device_state.h"

namespace ringmaster::cuda {

class CudaState final : public DeviceState {
 public:
  // `options.layout` is of the weights' parameters. From then on programs with these weights can
  // add up their gradients. RESOURCE_EXHAUSTED when the GPU has no more memory.
  [[nodiscard]] static StatusOr<std::unique_ptr<CudaState>> Create(
      DeviceWeights& weights, const DeviceStateOptions& options);
  // What it takes of the GPU beside the weights; `options` as for Create.
  [[nodiscard]] static uint64_t DeviceBytes(const DeviceStateOptions& options);
  ~CudaState() override;

  Status Load(std::span<const float> parameters, std::span<const std::span<const float>> slots,
              std::span<const int16_t> exponents) override;
  Status Store(std::span<float> parameters, std::span<const std::span<float>> slots,
               std::span<int16_t> exponents) override;
  Status Clear(float gradient_scale) override;
  Status ReadSums(const exact::Bucket& bucket, std::span<int64_t> sums) override;
  Status WriteTotals(const exact::Bucket& bucket, std::span<const int64_t> totals) override;
  StatusOr<StepHashes> Apply(SumSource source, uint64_t update) override;
  StatusOr<StepHashes> Skip(SumSource source) override;

  // What a state on several GPUs is made of: Apply and Skip in two halves, so that they run side by
  // side, and where the sums (kOwn) or the totals (kRing) of a bucket lie on this GPU. NCCL's
  // streams know of no event: where sums are asked for Clear is waited for.
  Status StartApply(SumSource source, uint64_t update);
  Status StartSkip(SumSource source);
  StatusOr<StepHashes> Finish();
  [[nodiscard]] StatusOr<int64_t*> Integers(SumSource source, const exact::Bucket& bucket) const;
  [[nodiscard]] int device() const { return weights_.device(); }

 private:
  // The layout as kernels read it, never changed.
  struct Tables {
    DeviceArray<uint32_t> counts, tensors, indices;  // by block
    DeviceArray<uint32_t> first_blocks;              // by tensor in arena order, and the end
  };

  CudaState(DeviceWeights& weights, const DeviceStateOptions& options,
            std::unique_ptr<graph::Optimizer> optimizer);
  Status Open();
  Status MakeArrays();
  Status FillTables();
  // For host arrays of any element.
  Status Upload(const auto& values, void* to);

  [[nodiscard]] Status MakeCurrent() const;
  [[nodiscard]] Status Wait();
  [[nodiscard]] Status CheckLoaded() const;
  [[nodiscard]] Status CheckBucket(const exact::Bucket& bucket, size_t integers) const;
  // Sizes of what Load and Store are given.
  template <typename T>
  [[nodiscard]] Status CheckSizes(std::span<T> parameters, std::span<const std::span<T>> slots,
                                  size_t exponents) const;

  // What lies in results_, in words: whether all that was read, and all that was written, is
  // finite; the digest; the hashes of both, two words of each part, then of the exponents.
  enum class Hashed : uint8_t { kRead, kWritten };
  static constexpr size_t kDigest = 2, kHashes = 4;
  [[nodiscard]] size_t PlaceOf(Hashed hashed) const {
    return kHashes + static_cast<size_t>(hashed) * 2 * (slot_count_ + 2);
  }

  [[nodiscard]] int64_t* Integers(SumSource source) const;
  // Enqueue: the hash of what is read, the update, and at last digest, the hash of what was written
  // and the copy of all of them to the host.
  Status StartChange();
  Status StartUpdate(SumSource source, uint64_t update);
  Status EndChange(SumSource source);
  Status StartHashes(Hashed hashed);
  // Of what the host has, after a wait.
  [[nodiscard]] exact::BlockSum SumAt(size_t word) const;
  [[nodiscard]] DeviceHashes HashesOf(Hashed hashed) const;
  [[nodiscard]] BlockNames names() const {
    return {tables_.tensors.data(), tables_.indices.data(), tables_.counts.data()};
  }

  DeviceWeights& weights_;
  const exact::BlockLayout& layout_;
  const std::unique_ptr<graph::Optimizer> optimizer_;
  const size_t slot_count_;
  const uint32_t shards_;
  const int precision_bits_;
  const size_t bucket_elements_;

  bool loaded_ = false;
  DeviceArray<int64_t> sums_, totals_;                                 // of this worker; of all
  std::array<DeviceArray<float>, UpdateArrays::kMaxSlots + 1> slots_;  // the average, too
  DeviceArray<int16_t> exponents_;
  DeviceArray<float> gradient_scale_;
  DeviceArray<uint64_t> results_, hash_scratch_;
  Arena host_results_{Place::kPinned};
  Tables tables_;
  DeviceUpdate update_;
  GradientSums gradient_sums_;

  Stream stream_;
  Event done_;
  Event cleared_;  // behind the newest Clear
  std::unique_ptr<Uploader> uploader_;
  std::unique_ptr<Downloader> downloader_;
  std::unique_ptr<SumTransfer> from_device_, to_device_;  // may be used side by side
};

}  // namespace ringmaster::cuda
