// What a dataset's samples are like: how many of each class, and mean and deviation of each
// channel. Sums are whole numbers, so the figures depend on the data alone. Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "common/data/dataset.h"

namespace ringmaster::data {

struct ChannelStatistics {
  double mean = 0, deviation = 0;  // of pixels, 0 to 255; over all samples, biased
};

struct SplitStatistics {
  std::vector<uint64_t> class_samples;
  std::vector<ChannelStatistics> channels;
};

// Reads every sample of the split.
[[nodiscard]] StatusOr<SplitStatistics> StatisticsOf(const Dataset& dataset, Split split);

}  // namespace ringmaster::data
