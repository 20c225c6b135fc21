// Samples a second over the last few steps. Step thread; a value, never part of any result.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace ringmaster::worker {

class RateMeter {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit RateMeter(Time now) { points_[0] = {now, 0}; }

  // A step with so many samples ended at `now`.
  void Add(uint64_t samples, Time now) {
    const uint64_t total = points_[newest_ % kPoints].samples + samples;
    points_[++newest_ % kPoints] = {now, total};
  }
  [[nodiscard]] double samples_per_second() const {
    const Point& newest = points_[newest_ % kPoints];
    const Point& oldest = points_[newest_ < kPoints ? 0 : (newest_ + 1) % kPoints];
    const std::chrono::duration<double> elapsed = newest.time - oldest.time;
    if (elapsed.count() <= 0) return 0;
    return static_cast<double>(newest.samples - oldest.samples) / elapsed.count();
  }

 private:
  static constexpr size_t kPoints = 32;  // steps
  struct Point {
    Time time;
    uint64_t samples = 0;  // so far
  };
  std::array<Point, kPoints> points_{};
  size_t newest_ = 0;
};

}  // namespace ringmaster::worker
