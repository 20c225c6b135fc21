#include "worker/ring/array_reduction.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace ringmaster::ring {
namespace {

using exact::kBlockElements;

constexpr size_t kBucketBlocks = (size_t{1} << 20) / kBlockElements;
// Of kExact, for each member: it starts one segment of a bucket, and the integers of a few buckets
// fit a cache.
constexpr size_t kStartedBlocks = ReduceOptions::kSegmentElements / kBlockElements;
constexpr size_t kWindow = 6;  // such buckets: more than are under way

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
      reduced_(blocks_.size() * kBlockElements) {
  std::ranges::copy(own, own_.span().begin());
}

void ArrayReduction::UseUnits(std::vector<int> unit_exponents) {
  RING_CHECK(unit_exponents.size() == blocks_.size(), "a unit for each block");
  unit_exponents_ = std::move(unit_exponents);
  whole_.reset();
}

Status ArrayReduction::Reduce(AllReduce* reduce, const Context& context, ArraySums sums) {
  if (sums == ArraySums::kIntegers && !whole_) {
    whole_.emplace(blocks_.size());
    Quantize({0, blocks_.size(), 0}, &whole_->own);
  }
  const bool windowed = sums == ArraySums::kExact;
  const size_t most = windowed ? std::min(kStartedBlocks * members_, kBucketBlocks) : kBucketBlocks;
  const size_t buckets = (blocks_.size() + most - 1) / most;
  std::vector<size_t> free;  // places in the window: the one that was left last is in the cache
  if (windowed) {
    const size_t places = std::min(kWindow, buckets);
    if (!window_) window_.emplace(places * most);
    for (size_t place = places; place-- > 0;) free.push_back(place * most);
  }
  std::vector<Part> parts;  // by bucket
  reduce->Begin(context);
  for (size_t done = 0; done < buckets;) {
    const bool room = !windowed || !free.empty();
    if (parts.size() < buckets && room) {
      const size_t first = parts.size() * most;
      parts.push_back({first, std::min(most, blocks_.size() - first), first});
      if (windowed) {
        parts.back().at = free.back();
        free.pop_back();
      }
      RING_RETURN_IF_ERROR(
          Add(reduce, static_cast<uint32_t>(parts.size() - 1), parts.back(), sums));
      reduce->Nudge();  // there is more to do here than to wait
    }
    const bool all = parts.size() == buckets;
    reduce->SetUrgent(all || !room);
    RING_RETURN_IF_ERROR(reduce->Work(all    ? AllReduce::Until::kIdle
                                      : room ? AllReduce::Until::kNews
                                             : AllReduce::Until::kFinished));
    for (const uint32_t bucket : reduce->TakeFinished()) {
      ++done;
      if (!windowed) continue;
      Finish(parts[bucket]);
      free.push_back(parts[bucket].at);
    }
  }
  return absl::OkStatus();
}

void ArrayReduction::Quantize(const Part& part, exact::BlockSums* integers) const {
  integers->Clear(part.at, part.count);
  for (size_t i = 0; i < part.count; ++i) {
    const size_t b = part.first + i;
    (void)integers->QuantizeAdd(part.at + i,
                                own_.span().subspan(b * kBlockElements, blocks_[b].count),
                                unit_exponents_[b], 1, members_);
  }
}

Status ArrayReduction::Add(AllReduce* reduce, uint32_t bucket, const Part& part, ArraySums sums) {
  const auto blocks = std::span(std::as_const(blocks_)).subspan(part.first, part.count);
  if (sums == ArraySums::kFloat32) {
    const size_t at = part.first * kBlockElements;
    const size_t count = part.count * kBlockElements;
    return reduce->AddFloat32(bucket, blocks, own_.span().subspan(at, count),
                              reduced_.span().subspan(at, count));
  }
  Integers& integers = sums == ArraySums::kExact ? *window_ : *whole_;
  if (sums == ArraySums::kExact) Quantize(part, &integers.own);
  return reduce->AddExact(bucket, blocks, {&integers.own, part.at}, {&integers.totals, part.at});
}

void ArrayReduction::Finish(const Part& part) {
  for (size_t i = 0; i < part.count; ++i) {
    const size_t b = part.first + i;
    window_->totals.Dequantize(part.at + i, unit_exponents_[b],
                               reduced_.span().subspan(b * kBlockElements, blocks_[b].count));
  }
}

}  // namespace ringmaster::ring
