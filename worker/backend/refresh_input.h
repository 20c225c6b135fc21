// What a Weights::Refresh is given must be of the program that the weights were made for, on any
// backend. A value, immutable, thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/graph/program.h"
#include "common/status.h"

namespace ringmaster {

struct RefreshSizes {
  explicit RefreshSizes(const graph::Program& program);

  // INVALID_ARGUMENT when sizes are not those of the program.
  [[nodiscard]] Status Check(const exact::BlockLayout& layout, std::span<const float> parameters,
                             std::span<const float> moving_means,
                             std::span<const float> moving_variances) const;

  // The parts of it.
  [[nodiscard]] Status CheckLayout(const exact::BlockLayout& layout) const;
  [[nodiscard]] Status CheckStatistics(std::span<const float> moving_means,
                                       std::span<const float> moving_variances) const;

  // What LoadFrozen is given.
  [[nodiscard]] Status CheckFrozen(std::span<const float> values) const;

  std::vector<uint64_t> parameters;    // elements, by canonical number
  std::vector<size_t> frozen_offsets;  // of what is frozen, in elements
  size_t frozen_elements = 0;          // with what is between
  std::vector<uint64_t> channels;      // by normalization
};

}  // namespace ringmaster
