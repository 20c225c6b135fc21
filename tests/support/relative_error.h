// How far results are from an oracle's. Thread-safe (a free function).
#pragma once

#include <cmath>
#include <limits>
#include <span>

namespace ringmaster::testing {

// |actual - expected| / |expected| in the Euclidean norm; |actual| where all expected are 0;
// infinite for different sizes or NaN.
template <typename Actual>
double RelativeError(std::span<const Actual> actual, std::span<const double> expected) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error = static_cast<double>(actual[i]) - expected[i];
    difference += error * error;
    norm += expected[i] * expected[i];
  }
  if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
  return std::sqrt(norm > 0 ? difference / norm : difference);
}

}  // namespace ringmaster::testing
