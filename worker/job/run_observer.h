// What heartbeats and events say of a start and of a run.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>

#include "common/ids.h"
#include "ringmaster/v1/fleet.pb.h"
#include "worker/logic/event.h"
#include "worker/train/progress.h"

namespace ringmaster::worker {

// The phases between the choice of workers and the first step, as they begin: what heartbeats show
// meanwhile, and an event for each with the time that the one before took. Owned by the job runner;
// Enter and Pause on the job thread, shown() from any thread. It knows no order: whoever enters a
// phase names it.
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

// Turns what a run says about itself into events: every progress as the message that the
// coordinator gets, checkpoints that are dropped, and the end of the last phase of starting. One
// for each run; step thread.
class RunObserver : public Observer {
 public:
  // All outlive it.
  RunObserver(const v1::Start* start, StartPhases* phases, const std::function<void(Event)>* post)
      : start_(start), phases_(phases), post_(post), applied_(start->start_step()) {}

  void OnProgress(const Progress& progress) override;
  void OnWhole() override;
  void OnCheckpointDropped(uint64_t step, const std::string& reason) override;

 private:
  const v1::Start* const start_;
  StartPhases* const phases_;
  const std::function<void(Event)>* const post_;
  uint64_t applied_;  // the newest step that was reported
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  bool told_ = false;  // something was
};

// `progress` without job, generation and digests. `lasting` has what came with this state.
[[nodiscard]] v1::Progress MessageOf(const Progress& progress);

}  // namespace ringmaster::worker
