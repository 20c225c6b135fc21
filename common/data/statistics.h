// What a dataset's samples are like, column by column: mean and deviation of images and numbers,
// how many of each class. Sums go in the order of the samples, so the figures depend on the data
// alone. Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "common/data/dataset.h"

namespace ringmaster::data {

struct ChannelStatistics {
  double mean = 0, deviation = 0;  // over all samples, biased
};

struct ColumnStatistics {
  // Of an image of each channel, its pixels being 0 to 255; of float32 of all numbers together.
  std::vector<ChannelStatistics> channels;
  // Of one whole number a sample, as far as kMostClasses: how many have each.
  std::vector<uint64_t> class_samples;
};
inline constexpr int64_t kMostClasses = 10'000;

struct SplitStatistics {
  std::vector<ColumnStatistics> columns;  // as facts().columns
};

// Reads every sample of the split.
[[nodiscard]] StatusOr<SplitStatistics> StatisticsOf(const Dataset& dataset, Split split);

}  // namespace ringmaster::data
