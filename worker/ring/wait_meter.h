// How long a member waited for its predecessor, counted from a moment that another thread names:
// what a reduction's receives cost when there is nothing left to compute meanwhile. Thread-safe,
// lock-free; two readings of the clock a frame.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>

namespace ringmaster::ring {

class WaitMeter {
 public:
  using Clock = std::chrono::steady_clock;

  // Nothing was waited, and nothing counts until CountFrom. While nobody waits.
  void Reset() {
    from_.store(kNever, std::memory_order_relaxed);
    waited_.store(0, std::memory_order_relaxed);
  }
  // Any thread, also in the middle of a wait: only what lies after `now` counts.
  void CountFrom(Clock::time_point now) {
    from_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  }
  // The waiting thread: it waited from `begin` to `end`.
  void Add(Clock::time_point begin, Clock::time_point end) {
    const Rep from =
        std::max(from_.load(std::memory_order_relaxed), begin.time_since_epoch().count());
    const Rep until = end.time_since_epoch().count();
    if (from < until) waited_.fetch_add(until - from, std::memory_order_relaxed);
  }
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(Clock::duration(waited_.load(std::memory_order_relaxed)))
        .count();
  }

 private:
  using Rep = Clock::rep;
  static constexpr Rep kNever = std::numeric_limits<Rep>::max();

  std::atomic<Rep> from_{kNever};
  std::atomic<Rep> waited_{0};
};

}  // namespace ringmaster::ring
