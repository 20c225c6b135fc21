// Turns what a run says about itself into events: every progress as the message that the
// coordinator gets, checkpoints that are dropped, and the end of the last phase of starting. One
// for each run; step thread.
#pragma once

#include <functional>
#include <string>

#include "ringmaster/v1/fleet.pb.h"
#include "worker/logic/event.h"
#include "worker/start_phases.h"
#include "worker/train/progress.h"

namespace ringmaster::worker {

class RunObserver : public Observer {
 public:
  // All outlive it.
  RunObserver(const v1::Start* start, StartPhases* phases, const std::function<void(Event)>* post)
      : start_(start), phases_(phases), post_(post) {}

  void OnProgress(const Progress& progress) override;
  void OnCheckpointDropped(uint64_t step, const std::string& reason) override;

 private:
  const v1::Start* const start_;
  StartPhases* const phases_;
  const std::function<void(Event)>* const post_;
  bool started_ = false;  // the first step is done
};

// `progress` without job, generation and digests.
[[nodiscard]] v1::Progress MessageOf(const Progress& progress);

}  // namespace ringmaster::worker
