// Quantiles of few measured values. Thread-safe (free function).
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace ringmaster::bench {

// The value at position q (n - 1) of the sorted values, between two of them by a straight line:
// q = 0.5 is the median. `values` has at least one; 0 <= q <= 1.
[[nodiscard]] inline double Quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  const double position = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], position - static_cast<double>(below));
}

}  // namespace ringmaster::bench
