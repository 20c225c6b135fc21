#include "common/exact/record.h"

#include <algorithm>
#include <bit>

#include "common/check.h"

namespace ringmaster::exact {
namespace {

constexpr size_t kLossSum = 0;
constexpr size_t kCorrect = 1;
constexpr size_t kSamples = 2;
constexpr size_t kMeans = 3;

size_t RoundUpToBlocks(size_t integers) {
  return (integers + kBlockElements - 1) / kBlockElements * kBlockElements;
}

// A count below 2^62 / shards, rounded down to a power of two; the limit of quantized scalars.
QuantizedScalar QuantizeCount(uint64_t count, uint32_t shards) {
  const int log2_shards = std::bit_width(shards - 1);
  if (count >= uint64_t{1} << (62 - log2_shards)) return {0, FlagKind::kTooLarge};
  return {static_cast<int64_t>(count), FlagKind::kNone};
}

}  // namespace

Record::Record(uint32_t shards, size_t statistics)
    : shards_(shards),
      statistics_(statistics),
      integers_(RoundUpToBlocks(kMeans + 2 * statistics + shards)) {
  RING_CHECK(shards >= 1, "a job has at least one shard");
}

std::vector<Block> Record::blocks() const {
  size_t left = kMeans + 2 * statistics_ + shards_;
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
  const auto add = [&](size_t at, QuantizedScalar scalar) {
    if (kind == FlagKind::kNone) kind = scalar.kind;
    integers_[at] = WrappingAdd(integers_[at], scalar.q);
  };
  add(kLossSum, QuantizeScalar(loss_sum, shards_));
  add(kCorrect, QuantizeCount(correct, shards_));
  add(kSamples, QuantizeCount(samples, shards_));
  for (size_t i = 0; i < statistics_; ++i) {
    add(kMeans + i, QuantizeScalar(sample_weighted_means[i], shards_));
    add(kMeans + statistics_ + i, QuantizeScalar(sample_weighted_variances[i], shards_));
  }
  int64_t& flag = integers_[flags() + shard];
  flag = WrappingAdd(flag, gradient_flag != 0 ? gradient_flag : EncodeFlag(kind, kRecordTensor));
}

void Record::Clear() { std::fill(integers_.begin(), integers_.end(), 0); }

double Record::loss_sum() const { return DequantizeScalar(integers_[kLossSum]); }

uint64_t Record::correct() const { return static_cast<uint64_t>(integers_[kCorrect]); }

uint64_t Record::samples() const { return static_cast<uint64_t>(integers_[kSamples]); }

double Record::mean(size_t i) const { return PerSample(kMeans + i); }

double Record::variance(size_t i) const { return PerSample(kMeans + statistics_ + i); }

double Record::PerSample(size_t at) const {
  return samples() == 0 ? 0.0 : DequantizeScalar(integers_[at]) / static_cast<double>(samples());
}

size_t Record::flags() const { return kMeans + 2 * statistics_; }

Record::Flagged Record::first_flag() const {
  for (uint32_t shard = 0; shard < shards_; ++shard) {
    const DecodedFlag flag = DecodeFlag(integers_[flags() + shard]);
    if (flag.kind != FlagKind::kNone) return {shard, flag};
  }
  return {};
}

}  // namespace ringmaster::exact
