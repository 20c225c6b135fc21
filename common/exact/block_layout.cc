#include "common/exact/block_layout.h"

#include <limits>

namespace ringmaster::exact {
namespace {

Status CheckTensor(const BlockLayout::Tensor& tensor, size_t tensors,
                   const std::vector<bool>& seen) {
  if (tensor.tensor >= tensors) {
    return InvalidArgument("block layout: tensor number {} of {} tensors; expected 0 to {}",
                           tensor.tensor, tensors, tensors - 1);
  }
  if (seen[tensor.tensor]) {
    return InvalidArgument("block layout: tensor number {} stands twice in the arena order",
                           tensor.tensor);
  }
  const uint64_t most = uint64_t{std::numeric_limits<uint32_t>::max()} * kBlockElements;
  if (tensor.elements == 0 || tensor.elements > most) {
    return InvalidArgument("block layout: tensor {} has {} elements; expected 1 to {}",
                           tensor.tensor, tensor.elements, most);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<BlockLayout> BlockLayout::Create(std::span<const Tensor> arena_order) {
  BlockLayout layout;
  std::vector<bool> seen(arena_order.size());
  layout.position_.resize(arena_order.size());
  for (size_t position = 0; position < arena_order.size(); ++position) {
    const Tensor& tensor = arena_order[position];
    RING_RETURN_IF_ERROR(CheckTensor(tensor, arena_order.size(), seen));
    seen[tensor.tensor] = true;
    layout.position_[tensor.tensor] = position;
    const size_t first = layout.blocks_.size();
    uint32_t index = 0;
    for (uint64_t begin = 0; begin < tensor.elements; begin += kBlockElements) {
      const uint64_t left = tensor.elements - begin;
      const auto count = static_cast<uint32_t>(left < kBlockElements ? left : kBlockElements);
      layout.blocks_.push_back({tensor.tensor, index++, count});
    }
    layout.tensors_.push_back({tensor.tensor, tensor.elements, first, index});
  }
  return layout;
}

std::vector<Bucket> CutBuckets(const BlockLayout& layout, size_t bucket_elements) {
  std::vector<Bucket> buckets;
  Bucket bucket{0, 0};
  uint64_t elements = 0;
  for (const TensorRange& tensor : layout.tensors()) {
    bucket.block_count += tensor.block_count;
    elements += tensor.elements;
    if (elements < bucket_elements) continue;
    buckets.push_back(bucket);
    bucket = {tensor.first_block + tensor.block_count, 0};
    elements = 0;
  }
  if (bucket.block_count > 0) buckets.push_back(bucket);
  return buckets;
}

std::vector<uint32_t> BucketsOfTensors(const BlockLayout& layout, std::span<const Bucket> buckets) {
  std::vector<uint32_t> of_tensor(layout.tensors().size());
  uint32_t bucket = 0;
  for (const TensorRange& tensor : layout.tensors()) {
    while (tensor.first_block >= buckets[bucket].first_block + buckets[bucket].block_count) {
      ++bucket;
    }
    of_tensor[tensor.tensor] = bucket;
  }
  return of_tensor;
}

}  // namespace ringmaster::exact
