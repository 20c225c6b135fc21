// This worker's own part of a step's gradients: what its cores' shards add up to, before the ring.
// Owned by the trainer. Begin and Continue: step thread, while nobody adds; Add: any core's thread;
// reading a bucket: any thread once it was reported ready. It knows no ring and no shard numbers.
//
// Integer addition commutes, so it does not matter which core adds which shard when. With
// `reduction: float32` the order of additions is that of arrival, and the bits depend on it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/arena.h"
#include "common/exact/block_layout.h"
#include "common/exact/block_sums.h"
#include "common/exact/quantize.h"
#include "common/exact/units.h"
#include "common/mutex.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::worker {

class GradientSum {
 public:
  // `layout` and `units` outlive it; `units` changes only between steps.
  GradientSum(const exact::BlockLayout* layout, const exact::Units* units, v1::Reduction reduction,
              uint32_t shards, size_t bucket_elements);

  [[nodiscard]] std::span<const exact::Bucket> buckets() const { return buckets_; }

  // Starts a step to which `shards` local shards will add, each all tensors once. Calls `ready`
  // once for each bucket as soon as nothing more can be added to it: at once when `shards` is 0,
  // else on the core's thread that added last. The sums are zero. `gradient_scale` is 1/S.
  void Begin(size_t shards, float gradient_scale, std::function<void(uint32_t bucket)> ready);

  // Goes on with the step in hand, to which whole shards were added, in place of what was begun:
  // `shards` more will add. Calls `ready` likewise.
  void Continue(size_t shards, std::function<void(uint32_t bucket)> ready);

  // Adds a piece of one shard's gradient of a tensor (canonical layout) times the gradient scale:
  // elements from `first` on, a multiple of kBlockElements, as are `piece`'s but for the last ones,
  // which complete the tensor. The result says what is wrong with the first wrong element of the
  // piece, which added 0.
  [[nodiscard]] exact::FlagKind Add(uint32_t tensor, size_t first, std::span<const float> piece);

  // One shard's gradient of a tensor was added on the device.
  void AddedOnDevice(uint32_t tensor) { CountDown(bucket_of_tensor_[tensor]); }
  // A device has all sums: there are none here.
  void LeaveToDevice() { integers_ = {}; }

  // By block of the layout; those that fit the reduction are not empty.
  [[nodiscard]] const exact::BlockSums& integers() const { return integers_; }
  // Of a bucket's blocks, 256 elements a block.
  [[nodiscard]] std::span<const float> floats(const exact::Bucket& bucket) const;

  // Sets a range of blocks to zero; several threads may do so on different ranges. A step that ends
  // without clearing everything is cleared by the next Begin.
  void Clear(size_t first_block, size_t block_count);
  void SetCleared() { cleared_ = true; }

 private:
  void AddStripe(size_t first_block, size_t end_block, std::span<const float> gradient,
                 exact::FlagKind* kind);
  void CountDown(uint32_t bucket);

  const exact::BlockLayout* const layout_;
  const exact::Units* const units_;
  const uint32_t shards_;
  const std::vector<exact::Bucket> buckets_;
  const std::vector<uint32_t> bucket_of_tensor_;  // by canonical number

  exact::BlockSums integers_;              // guarded by stripes_
  Arena<float> floats_;                    // likewise; only one of the two is allocated
  std::vector<Mutex> stripes_;             // one for every kStripeBlocks blocks
  std::vector<std::atomic<size_t>> left_;  // additions that each bucket still waits for
  std::vector<size_t> tensors_in_bucket_;
  float gradient_scale_ = 1;
  std::function<void(uint32_t)> ready_;
  bool cleared_ = true;
};

}  // namespace ringmaster::worker
