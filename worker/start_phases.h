// The phases between the choice of workers and the first step, as they begin: what heartbeats show
// meanwhile, and an event for each with the time that the one before took. Owned by the job runner;
// Enter and Pause on the job thread, shown() from any thread. It knows no order: whoever enters a
// phase names it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>

#include "common/ids.h"
#include "worker/logic/event.h"

namespace ringmaster::worker {

class StartPhases {
 public:
  explicit StartPhases(std::function<void(Event)> post) : post_(std::move(post)) {}

  // `phase` is a string literal: data_check, graph, plan, bind, initialize, ring, first_step, done.
  void Enter(const JobId& job, const char* phase);
  // The phase has ended and what comes next is not up to this worker: the clock stands still. What
  // is shown stays.
  void Pause();
  // The phase entered last; empty after Clear.
  [[nodiscard]] const char* shown() const { return shown_.load(std::memory_order_relaxed); }
  void Clear();

 private:
  const std::function<void(Event)> post_;
  std::atomic<const char*> shown_{""};
  // Job thread.
  bool running_ = false;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::duration<double> seconds_{0};
};

}  // namespace ringmaster::worker
