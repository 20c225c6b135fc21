// This worker's part of one generation, from Start to RunEnded: watches its neighbours, connects
// the ring, gets S(K) when it is not here, trains. One object for each RunJob, on the job thread;
// its stops may be requested from any thread. It decides nothing.
#pragma once

#include <grpcpp/channel.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "worker/job/catch_up.h"
#include "worker/job/checkpoint_upload.h"
#include "worker/job/run_observer.h"
#include "worker/logic/action.h"
#include "worker/logic/event.h"
#include "worker/ring/grpc/ring_port.h"
#include "worker/train/trainer.h"

namespace ringmaster::worker {

// What every run of this daemon needs. All outlive it.
struct RunSurroundings {
  std::string name;
  std::string incarnation;
  ring::RingPort* port = nullptr;
  std::shared_ptr<grpc::Channel> coordinator;  // checkpoints go there
  StateSources sources;
  StartPhases* phases = nullptr;
  std::function<void(Event)> post;
  std::function<UploadRights()> rights;  // to deliver checkpoints of the job that is served
  // A neighbour that left the ring of its own accord was fenced, or told the coordinator why: the
  // fence comes here too, within this, and is a better reason than ours.
  std::chrono::milliseconds better_reason_limit{2'000};
};

// How a run is told to end.
struct RunStops {
  std::stop_source now;
  std::stop_source at_boundary;

  void Request(RunStop when) { (when == RunStop::kNow ? now : at_boundary).request_stop(); }
};

// What an acknowledgement says of S(applied) beside its digest. It outlives a run that never came
// to train: the state, and what was computed on it, are as before then.
struct StateMark {
  std::vector<uint32_t> folded;
  bool evaluated = false;
};

[[nodiscard]] inline GenerationId GenerationOf(const v1::Start& start) {
  return {start.generation().term(), start.generation().counter()};
}

class GenerationRun {
 public:
  // All outlive it; `training` is true while the step loop runs.
  GenerationRun(const RunSurroundings* surroundings, const RunJob* task,
                std::shared_ptr<Trainer> trainer, StateMark* mark, std::atomic<bool>* training);

  [[nodiscard]] RunEnded Run(const RunStops& stops);

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  [[nodiscard]] StatusOr<Assignment> FindSelf() const;
  [[nodiscard]] ring::RingPlace PlaceInRing() const;
  // What comes before the first step: neighbours that see that this worker lives, the ring, the
  // state. False: `ended_` says why not.
  [[nodiscard]] bool WatchNeighbours();
  [[nodiscard]] bool Connect(const std::stop_token& stop);
  [[nodiscard]] bool CatchUpWith(const std::stop_token& stop);
  void Join();  // tells that it is in, unless it follows
  // Whom it would send to if nobody, or its successor, were lost.
  [[nodiscard]] std::vector<ring::Successor> NextSuccessors() const;
  void Train(const RunStops& stops);
  void Describe(const RunResult& result, const RunStops& stops);
  void End(Outcome outcome, const Status& status, std::string peer = "");
  // Of the ring's members, by distance from this one.
  [[nodiscard]] const v1::RingMember& Member(uint32_t distance) const;

  const RunSurroundings* const surroundings_;
  const RunJob* const task_;
  const std::shared_ptr<Trainer> trainer_;
  StateMark* const mark_;
  std::atomic<bool>* const training_;

  Assignment assignment_;
  std::unique_ptr<CatchUp> catch_up_;  // as long as the run: it may bring the state meanwhile
  bool follows_ = false;
  double fetch_seconds_ = 0;
  std::unique_ptr<ring::Link> link_;
  std::unique_ptr<ring::PeerWatch> watch_;  // as long as the run
  RunEnded ended_;
};

}  // namespace ringmaster::worker
