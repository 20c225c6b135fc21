// The scalars record of a step, the last bucket of every reduction (docs/life_of_a_step.md): a
// vector of int64 that travels as blocks of kRecordTensor. Thread-compatible.
//
// Layout: samples, the counts among the scalars, the whole parts of all real values, then their
// fractions in the same order, then V flags. Real values are the other scalars, then n_s * mean of
// each normalization and channel, then n_s * biased variance of each. Counts and whole parts have
// unit 1, fractions that of ScalarCode(V) (`common/exact/quantize.h`). Whole parts lie apart from
// fractions, since a block travels as wide as its widest integer. Zeros fill it up to a whole
// number of blocks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/exact/quantize.h"

namespace ringmaster::exact {

// How many a record has of what.
struct RecordShape {
  uint32_t shards = 1;
  std::vector<bool> counts;  // of each scalar, whether it is a count
  size_t statistics = 0;     // means (and variances) of all normalizations, in canonical order
};

class Record {
 public:
  explicit Record(RecordShape shape);

  // Adds one shard. Values that do not fit add 0 and set the shard's flag (tensor kRecordTensor),
  // unless `gradient_flag` already names something.
  void AddShard(uint32_t shard, uint64_t samples, std::span<const double> scalars,
                std::span<const double> sample_weighted_means,
                std::span<const double> sample_weighted_variances, int64_t gradient_flag);

  // 256 for each of blocks(): what goes round the ring.
  [[nodiscard]] std::span<int64_t> integers() { return integers_; }
  [[nodiscard]] std::span<const int64_t> integers() const { return integers_; }
  [[nodiscard]] std::vector<Block> blocks() const;
  void Clear();

  // Meaning of a reduced record.
  [[nodiscard]] uint64_t samples() const { return static_cast<uint64_t>(integers_[kSamples]); }
  // The sums of all scalars; counts are exact.
  [[nodiscard]] std::vector<double> scalars() const;
  // Sample-weighted mean over the batch of statistic i; 0 without samples.
  [[nodiscard]] double mean(size_t i) const { return PerSample(real_scalars_ + i); }
  [[nodiscard]] double variance(size_t i) const {
    return PerSample(real_scalars_ + shape_.statistics + i);
  }
  struct Flagged {
    uint32_t shard = 0;
    DecodedFlag flag;
  };
  // The first flagged shard; flag.kind == kNone when there is none.
  [[nodiscard]] Flagged first_flag() const;

 private:
  static constexpr size_t kSamples = 0;
  static constexpr size_t kCounts = 1;

  // Real value i of reals(); where its whole part, its fraction and the flags lie.
  [[nodiscard]] double Real(size_t i) const {
    return code_.Dequantize(integers_[whole(i)], integers_[fraction(i)]);
  }
  [[nodiscard]] double PerSample(size_t i) const {
    return samples() == 0 ? 0.0 : Real(i) / static_cast<double>(samples());
  }
  [[nodiscard]] size_t counts() const { return places_.size() - real_scalars_; }
  [[nodiscard]] size_t reals() const { return real_scalars_ + 2 * shape_.statistics; }
  [[nodiscard]] size_t whole(size_t i) const { return kCounts + counts() + i; }
  [[nodiscard]] size_t fraction(size_t i) const { return whole(reals()) + i; }
  [[nodiscard]] size_t flags() const { return fraction(reals()); }
  [[nodiscard]] size_t size() const { return flags() + shape_.shards; }

  RecordShape shape_;
  ScalarCode code_;
  size_t real_scalars_ = 0;
  std::vector<size_t> places_;  // of each scalar among counts, or among real values
  std::vector<int64_t> integers_;
};

}  // namespace ringmaster::exact
