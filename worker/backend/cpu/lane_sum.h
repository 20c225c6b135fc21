// A sum in double with one fixed order: element i of a row to lane i mod 8, in the end lanes
// pairwise. A value; thread-compatible.
#pragma once

#include <cstdint>

namespace ringmaster::cpu {

class LaneSum {
 public:
  // f(i) for i in [0, count): a row, or such a part of it that only the last is not of whole lanes.
  template <typename F>
  void Add(int64_t count, const F& f) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        lanes_[lane] += static_cast<double>(f(i + lane));
      }
    }
    for (int64_t lane = 0; i < count; ++i, ++lane) lanes_[lane] += static_cast<double>(f(i));
  }

  [[nodiscard]] double Total() const {
    double sums[kLanes / 2];
    for (int64_t lane = 0; lane < kLanes / 2; ++lane) {
      sums[lane] = lanes_[lane] + lanes_[lane + kLanes / 2];
    }
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
  }

 private:
  static constexpr int64_t kLanes = 8;
  double lanes_[kLanes] = {};
};

}  // namespace ringmaster::cpu
