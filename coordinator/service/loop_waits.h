// How long events waited for the thread that decides, counted by size, as
// CoordinatorFigures.loop_waits has it. Thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {

class LoopWaits {
 public:
  using Duration = std::chrono::steady_clock::duration;

  void Add(Duration waited) { counts_[EntryOf(waited)].fetch_add(1, std::memory_order_relaxed); }

  void Show(v1::CoordinatorFigures& figures) const {
    figures.clear_loop_waits();
    for (const auto& count : counts_) figures.add_loop_waits(count.load(std::memory_order_relaxed));
  }

 private:
  static constexpr size_t kEntries = 84;  // up to half a minute
  static constexpr double kFirst = 16e-6;
  static constexpr double kEachOctave = 4;

  static size_t EntryOf(Duration waited) {
    const double ratio = std::chrono::duration<double>(waited).count() / kFirst;
    if (ratio < 1) return 0;
    return std::min(kEntries - 1, static_cast<size_t>(kEachOctave * std::log2(ratio)));
  }

  std::array<std::atomic<uint64_t>, kEntries> counts_{};
};

}  // namespace ringmaster::coordinator
