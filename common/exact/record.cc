#include "common/exact/record.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/check.h"

namespace ringmaster::exact {
namespace {

size_t RoundUpToBlocks(size_t integers) {
  return (integers + kBlockElements - 1) / kBlockElements * kBlockElements;
}

// A count below 2^62 / shards, rounded down to a power of two; the limit of quantized scalars.
QuantizedScalar QuantizeCount(double count, uint32_t shards) {
  const int log2_shards = std::bit_width(shards - 1);
  const auto limit = static_cast<double>(uint64_t{1} << (62 - log2_shards));
  if (!(count >= 0 && count < limit)) return {0, 0, FlagKind::kTooLarge};
  return {static_cast<int64_t>(count), 0, FlagKind::kNone};
}

}  // namespace

Record::Record(RecordShape shape) : shape_(std::move(shape)), code_(shape_.shards) {
  RING_CHECK(shape_.shards >= 1, "a job has at least one shard");
  size_t counts = 0;
  for (const bool is_count : shape_.counts) {
    places_.push_back(is_count ? counts++ : real_scalars_++);
  }
  integers_.resize(RoundUpToBlocks(size()));
}

std::vector<Block> Record::blocks() const {
  size_t left = size();
  std::vector<Block> blocks;
  for (uint32_t index = 0; left > 0; ++index) {
    const auto count = static_cast<uint32_t>(std::min<size_t>(left, kBlockElements));
    blocks.push_back({kRecordTensor, index, count});
    left -= count;
  }
  return blocks;
}

void Record::AddShard(uint32_t shard, uint64_t samples, std::span<const double> scalars,
                      std::span<const double> sample_weighted_means,
                      std::span<const double> sample_weighted_variances, int64_t gradient_flag) {
  RING_CHECK(shard < shape_.shards, "shard number of this job");
  RING_CHECK(scalars.size() == places_.size(), "as many scalars as the record has");
  RING_CHECK(sample_weighted_means.size() == shape_.statistics &&
                 sample_weighted_variances.size() == shape_.statistics,
             "as many statistics as the record has");
  FlagKind kind = FlagKind::kNone;
  const auto add = [&](size_t at, int64_t integer) {
    integers_[at] = WrappingAdd(integers_[at], integer);
  };
  const auto keep_first = [&](const QuantizedScalar& scalar) {
    if (kind == FlagKind::kNone) kind = scalar.kind;
    return scalar;
  };
  const auto add_count = [&](size_t at, double count) {
    add(at, keep_first(QuantizeCount(count, shape_.shards)).whole);
  };
  const auto add_real = [&](size_t i, double value) {
    const QuantizedScalar scalar = keep_first(code_.Quantize(value));
    add(whole(i), scalar.whole);
    add(fraction(i), scalar.fraction);
  };
  for (size_t i = 0; i < scalars.size(); ++i) {
    if (shape_.counts[i]) {
      add_count(kCounts + places_[i], scalars[i]);
    } else {
      add_real(places_[i], scalars[i]);
    }
  }
  add_count(kSamples, static_cast<double>(samples));
  for (size_t i = 0; i < shape_.statistics; ++i) {
    add_real(real_scalars_ + i, sample_weighted_means[i]);
    add_real(real_scalars_ + shape_.statistics + i, sample_weighted_variances[i]);
  }
  int64_t& flag = integers_[flags() + shard];
  flag = WrappingAdd(flag, gradient_flag != 0 ? gradient_flag : EncodeFlag(kind, kRecordTensor));
}

void Record::Clear() { std::fill(integers_.begin(), integers_.end(), 0); }

std::vector<double> Record::scalars() const {
  std::vector<double> sums;
  for (size_t i = 0; i < places_.size(); ++i) {
    const size_t place = places_[i];
    sums.push_back(shape_.counts[i] ? static_cast<double>(integers_[kCounts + place])
                                    : Real(place));
  }
  return sums;
}

Record::Flagged Record::first_flag() const {
  for (uint32_t shard = 0; shard < shape_.shards; ++shard) {
    const DecodedFlag flag = DecodeFlag(integers_[flags() + shard]);
    if (flag.kind != FlagKind::kNone) return {shard, flag};
  }
  return {};
}

}  // namespace ringmaster::exact
