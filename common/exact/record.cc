#include "common/exact/record.h"

#include <algorithm>
#include <bit>

#include "common/check.h"

namespace ringmaster::exact {
namespace {

constexpr size_t kCorrect = 0;
constexpr size_t kSamples = 1;
constexpr size_t kWholeParts = 2;
// Real values: the loss sum, means, variances.
constexpr size_t kLossSum = 0;
constexpr size_t kMeans = 1;

size_t RoundUpToBlocks(size_t integers) {
  return (integers + kBlockElements - 1) / kBlockElements * kBlockElements;
}

// A count below 2^62 / shards, rounded down to a power of two; the limit of quantized scalars.
QuantizedScalar QuantizeCount(uint64_t count, uint32_t shards) {
  const int log2_shards = std::bit_width(shards - 1);
  if (count >= uint64_t{1} << (62 - log2_shards)) return {0, 0, FlagKind::kTooLarge};
  return {static_cast<int64_t>(count), 0, FlagKind::kNone};
}

}  // namespace

Record::Record(uint32_t shards, size_t statistics)
    : shards_(shards), statistics_(statistics), integers_(RoundUpToBlocks(size())) {
  RING_CHECK(shards >= 1, "a job has at least one shard");
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

void Record::AddShard(uint32_t shard, double loss_sum, uint64_t correct, uint64_t samples,
                      std::span<const double> sample_weighted_means,
                      std::span<const double> sample_weighted_variances, int64_t gradient_flag) {
  RING_CHECK(shard < shards_, "shard number of this job");
  RING_CHECK(sample_weighted_means.size() == statistics_ &&
                 sample_weighted_variances.size() == statistics_,
             "as many statistics as the record has");
  FlagKind kind = FlagKind::kNone;
  const auto add = [&](size_t at, int64_t integer) {
    integers_[at] = WrappingAdd(integers_[at], integer);
  };
  const auto keep_first = [&](const QuantizedScalar& scalar) {
    if (kind == FlagKind::kNone) kind = scalar.kind;
    return scalar;
  };
  const auto add_count = [&](size_t at, uint64_t count) {
    add(at, keep_first(QuantizeCount(count, shards_)).whole);
  };
  const auto add_real = [&](size_t i, double value) {
    const QuantizedScalar scalar = keep_first(QuantizeScalar(value, shards_));
    add(whole(i), scalar.whole);
    add(fraction(i), scalar.fraction);
  };
  add_real(kLossSum, loss_sum);
  add_count(kCorrect, correct);
  add_count(kSamples, samples);
  for (size_t i = 0; i < statistics_; ++i) {
    add_real(kMeans + i, sample_weighted_means[i]);
    add_real(kMeans + statistics_ + i, sample_weighted_variances[i]);
  }
  int64_t& flag = integers_[flags() + shard];
  flag = WrappingAdd(flag, gradient_flag != 0 ? gradient_flag : EncodeFlag(kind, kRecordTensor));
}

void Record::Clear() { std::fill(integers_.begin(), integers_.end(), 0); }

double Record::loss_sum() const { return Real(kLossSum); }

uint64_t Record::correct() const { return static_cast<uint64_t>(integers_[kCorrect]); }

uint64_t Record::samples() const { return static_cast<uint64_t>(integers_[kSamples]); }

double Record::mean(size_t i) const { return PerSample(kMeans + i); }

double Record::variance(size_t i) const { return PerSample(kMeans + statistics_ + i); }

double Record::Real(size_t i) const {
  return DequantizeScalar(integers_[whole(i)], integers_[fraction(i)], shards_);
}

double Record::PerSample(size_t i) const {
  return samples() == 0 ? 0.0 : Real(i) / static_cast<double>(samples());
}

size_t Record::whole(size_t i) const { return kWholeParts + i; }

Record::Flagged Record::first_flag() const {
  for (uint32_t shard = 0; shard < shards_; ++shard) {
    const DecodedFlag flag = DecodeFlag(integers_[flags() + shard]);
    if (flag.kind != FlagKind::kNone) return {shard, flag};
  }
  return {};
}

}  // namespace ringmaster::exact
