#include "worker/ring/array_reduction.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace ringmaster::ring {
namespace {

using exact::kBlockElements;

constexpr size_t kBucketBlocks = (size_t{1} << 20) / kBlockElements;

std::vector<exact::Block> BlocksOf(size_t elements) {
  std::vector<exact::Block> blocks;
  for (size_t at = 0; at < elements; at += kBlockElements) {
    const size_t count = std::min<size_t>(kBlockElements, elements - at);
    blocks.push_back({0, static_cast<uint32_t>(blocks.size()), static_cast<uint32_t>(count)});
  }
  return blocks;
}

}  // namespace

ArrayReduction::ArrayReduction(std::span<const float> own, uint32_t members)
    : members_(members),
      blocks_(BlocksOf(own.size())),
      own_(blocks_.size() * kBlockElements),
      reduced_(blocks_.size() * kBlockElements),
      integers_(blocks_.size()),
      totals_(blocks_.size()) {
  std::ranges::copy(own, own_.span().begin());
}

void ArrayReduction::UseUnits(std::vector<int> unit_exponents) {
  RING_CHECK(unit_exponents.size() == blocks_.size(), "a unit for each block");
  unit_exponents_ = std::move(unit_exponents);
  Quantize(0, blocks_.size());
}

Status ArrayReduction::Reduce(AllReduce* reduce, const Context& context, ArraySums sums) {
  reduce->Begin(context);
  const size_t buckets = (blocks_.size() + kBucketBlocks - 1) / kBucketBlocks;
  uint32_t added = 0;
  for (size_t done = 0; done < buckets;) {
    if (added < buckets) {
      RING_RETURN_IF_ERROR(Add(reduce, PartOf(added++), sums));
      reduce->Nudge();  // there is more to do here than to wait
    }
    reduce->SetUrgent(added == buckets);
    RING_RETURN_IF_ERROR(
        reduce->Work(added < buckets ? AllReduce::Until::kNews : AllReduce::Until::kIdle));
    for (const uint32_t bucket : reduce->TakeFinished()) {
      if (sums == ArraySums::kExact) Finish(PartOf(bucket));
      ++done;
    }
  }
  return absl::OkStatus();
}

ArrayReduction::Part ArrayReduction::PartOf(uint32_t bucket) const {
  const size_t first = bucket * kBucketBlocks;
  return {bucket, first, std::min(kBucketBlocks, blocks_.size() - first)};
}

void ArrayReduction::Quantize(size_t first, size_t count) {
  integers_.Clear(first, count);
  for (size_t b = first; b < first + count; ++b) {
    (void)integers_.QuantizeAdd(
        b, std::as_const(own_).span().subspan(b * kBlockElements, blocks_[b].count),
        unit_exponents_[b], 1, members_);
  }
}

Status ArrayReduction::Add(AllReduce* reduce, const Part& part, ArraySums sums) {
  const auto blocks = std::span(std::as_const(blocks_)).subspan(part.first, part.count);
  if (sums == ArraySums::kFloat32) {
    const size_t at = part.first * kBlockElements;
    const size_t count = part.count * kBlockElements;
    return reduce->AddFloat32(part.bucket, blocks, own_.span().subspan(at, count),
                              reduced_.span().subspan(at, count));
  }
  if (sums == ArraySums::kExact) Quantize(part.first, part.count);
  return reduce->AddExact(part.bucket, blocks, {&integers_, part.first}, {&totals_, part.first});
}

void ArrayReduction::Finish(const Part& part) {
  for (size_t b = part.first; b < part.first + part.count; ++b) {
    totals_.Dequantize(b, unit_exponents_[b],
                       reduced_.span().subspan(b * kBlockElements, blocks_[b].count));
  }
}

}  // namespace ringmaster::ring
