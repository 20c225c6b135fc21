// How late the last beats of a neighbour were, and so how long its silence may last before it means
// something. Thread-compatible.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>

namespace ringmaster::ring {

class LateBeats {
 public:
  void Add(std::chrono::milliseconds late) {
    late_[count_++ % kKept] = static_cast<uint16_t>(std::clamp<int64_t>(late.count(), 0, 60'000));
  }

  // The 99.9th percentile (nearest rank) of the last 1,024, which are 51 s of beats: the largest
  // while there are fewer than 1,000.
  [[nodiscard]] std::chrono::milliseconds P999() const {
    const size_t kept = std::min(count_, kKept);
    if (kept == 0) return std::chrono::milliseconds(0);
    std::array<uint16_t, kKept> sorted = late_;
    const size_t above = kept / 1000;  // so many are larger
    std::nth_element(sorted.begin(), sorted.begin() + above, sorted.begin() + kept,
                     std::greater<>());
    return std::chrono::milliseconds(sorted[above]);
  }

 private:
  static constexpr size_t kKept = 1024;
  std::array<uint16_t, kKept> late_{};
  size_t count_ = 0;
};

}  // namespace ringmaster::ring
