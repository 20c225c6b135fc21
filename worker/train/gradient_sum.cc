#include "worker/train/gradient_sum.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"
#include "common/numeric/float_mode.h"

namespace ringmaster::worker {
namespace {

// Blocks under one lock: 64 Ki elements, tens of microseconds of work, so that cores that yield the
// same tensor at the same time follow each other through it instead of waiting for all of it.
constexpr size_t kStripeBlocks = 256;

// float32 sums have no units: a value is wrong only when it is not finite.
exact::FlagKind AddFloats(std::span<const float> gradient, float scale, float* sums) {
  auto kind = exact::FlagKind::kNone;
  for (size_t i = 0; i < gradient.size(); ++i) {
    if (!std::isfinite(gradient[i])) [[unlikely]] {
      kind = exact::FlagKind::kNotFinite;
      continue;
    }
    sums[i] += gradient[i] * scale;
  }
  return kind;
}

}  // namespace

GradientSum::GradientSum(const exact::BlockLayout* layout, const exact::Units* units,
                         v1::Reduction reduction, uint32_t shards, size_t bucket_elements)
    : layout_(layout),
      units_(units),
      shards_(shards),
      buckets_(exact::CutBuckets(*layout, bucket_elements)),
      bucket_of_tensor_(exact::BucketsOfTensors(*layout, buckets_)),
      stripes_((layout->block_count() + kStripeBlocks - 1) / kStripeBlocks),
      left_(buckets_.size()),
      tensors_in_bucket_(buckets_.size()) {
  if (reduction == v1::REDUCTION_FLOAT32) {
    floats_ = Arena<float>(layout->arena_elements());
  } else {
    integers_ = exact::BlockSums(layout->block_count());
  }
  for (const uint32_t bucket : bucket_of_tensor_) ++tensors_in_bucket_[bucket];
}

void GradientSum::Begin(size_t shards, float gradient_scale, std::function<void(uint32_t)> ready) {
  if (!cleared_) Clear(0, layout_->block_count());
  cleared_ = false;
  gradient_scale_ = gradient_scale;
  Continue(shards, std::move(ready));
}

void GradientSum::Continue(size_t shards, std::function<void(uint32_t)> ready) {
  ready_ = std::move(ready);
  for (size_t i = 0; i < buckets_.size(); ++i) {
    left_[i].store(shards * tensors_in_bucket_[i], std::memory_order_relaxed);
    if (shards == 0) ready_(static_cast<uint32_t>(i));
  }
}

exact::FlagKind GradientSum::Add(uint32_t tensor, size_t first, std::span<const float> piece) {
  DefaultFloatMode::Check();
  const exact::TensorRange& range = layout_->tensor(tensor);
  const size_t behind = first + piece.size();
  RING_CHECK(behind <= range.elements && first % exact::kBlockElements == 0 &&
                 (behind == range.elements || behind % exact::kBlockElements == 0),
             "a gradient of another size than its parameter, or torn within a block");
  auto kind = exact::FlagKind::kNone;
  const size_t begin = range.first_block + first / exact::kBlockElements;
  const size_t end = behind == range.elements ? range.first_block + range.block_count
                                              : range.first_block + behind / exact::kBlockElements;
  for (size_t block = begin; block < end;) {
    const size_t stripe_end = std::min(end, (block / kStripeBlocks + 1) * kStripeBlocks);
    AddStripe(block, stripe_end, piece.subspan((block - begin) * exact::kBlockElements), &kind);
    block = stripe_end;
  }
  if (behind == range.elements) CountDown(bucket_of_tensor_[tensor]);
  return kind;
}

void GradientSum::AddStripe(size_t first_block, size_t end_block, std::span<const float> gradient,
                            exact::FlagKind* kind) {
  MutexLock lock(stripes_[first_block / kStripeBlocks]);
  for (size_t block = first_block; block < end_block; ++block) {
    const auto part = gradient.subspan((block - first_block) * exact::kBlockElements,
                                       layout_->blocks()[block].count);
    const exact::FlagKind found =
        floats_.size() > 0 ? AddFloats(part, gradient_scale_,
                                       floats_.span().data() + block * exact::kBlockElements)
                           : integers_.QuantizeAdd(block, part, units_->unit_exponent(block),
                                                   gradient_scale_, shards_);
    if (*kind == exact::FlagKind::kNone) *kind = found;
  }
}

void GradientSum::CountDown(uint32_t bucket) {
  // acq_rel: whoever sees zero sees every addition.
  const size_t before = left_[bucket].fetch_sub(1, std::memory_order_acq_rel);
  RING_CHECK(before > 0, "more gradients than shards");
  if (before == 1) ready_(bucket);
}

std::span<const float> GradientSum::floats(const exact::Bucket& bucket) const {
  if (floats_.size() == 0) return {};
  return floats_.span().subspan(bucket.first_block * exact::kBlockElements,
                                bucket.block_count * exact::kBlockElements);
}

void GradientSum::Clear(size_t first_block, size_t block_count) {
  const size_t first = first_block * exact::kBlockElements;
  const size_t count = block_count * exact::kBlockElements;
  if (integers_.blocks() > 0) integers_.Clear(first_block, block_count);
  if (floats_.size() > 0) std::ranges::fill(floats_.span().subspan(first, count), 0.0F);
}

}  // namespace ringmaster::worker
