// The scalars record of a step: the last bucket of every reduction (DESIGN section 4.5). A vector
// of int64 that travels as blocks of kRecordTensor. Thread-compatible.
//
// Layout: [0] loss sum, [1] correct, [2] samples, then for each normalization and channel
// n_s * mean, then for each n_s * biased variance, then V flags. Counts have unit 1, the rest
// 2^-32. Zeros fill it up to a whole number of blocks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/exact/quantize.h"

namespace ringmaster::exact {

class Record {
 public:
  // `statistics`: means (and variances) of all normalizations together, in canonical order.
  Record(uint32_t shards, size_t statistics);

  // Adds one shard. Values that do not fit add 0 and set the shard's flag (tensor kRecordTensor),
  // unless `gradient_flag` already names something.
  void AddShard(uint32_t shard, double loss_sum, uint64_t correct, uint64_t samples,
                std::span<const double> sample_weighted_means,
                std::span<const double> sample_weighted_variances, int64_t gradient_flag);

  // 256 for each of blocks(): what goes round the ring.
  [[nodiscard]] std::span<int64_t> integers() { return integers_; }
  [[nodiscard]] std::span<const int64_t> integers() const { return integers_; }
  [[nodiscard]] std::vector<Block> blocks() const;
  void Clear();

  // Meaning of a reduced record.
  [[nodiscard]] double loss_sum() const;
  [[nodiscard]] uint64_t correct() const;
  [[nodiscard]] uint64_t samples() const;
  // Sample-weighted mean over the batch of statistic i; 0 without samples.
  [[nodiscard]] double mean(size_t i) const;
  [[nodiscard]] double variance(size_t i) const;
  struct Flagged {
    uint32_t shard = 0;
    DecodedFlag flag;
  };
  // The first flagged shard; flag.kind == kNone when there is none.
  [[nodiscard]] Flagged first_flag() const;

 private:
  [[nodiscard]] double PerSample(size_t at) const;
  [[nodiscard]] size_t flags() const;  // where they begin

  uint32_t shards_;
  size_t statistics_;
  std::vector<int64_t> integers_;
};

}  // namespace ringmaster::exact
