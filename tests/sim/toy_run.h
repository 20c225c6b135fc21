// One run of a toy job in one generation: fetches S(K) where it is missing, connects the ring,
// computes steps, sends checkpoints off. What worker/job/job_runner with worker/train and
// worker/ring is in the product; it obeys the same rules of docs/regroup.md. Owned by a ToyTrainer.
//
// One that follows takes part in each round with nothing of its own and keeps the sums, until the
// state of a step behind K has come: that it brings up to date with the sums since, and goes on
// from there like the others.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/ids.h"
#include "tests/sim/courier.h"
#include "tests/sim/toy_ring.h"
#include "tests/sim/toy_state.h"
#include "worker/logic/action.h"
#include "worker/logic/event.h"

namespace ringmaster::sim {

// What a worker holds of a job.
struct ToyJob {
  JobId id;
  v1::ResolvedJob resolved;
  uint64_t applied = 0;
  StateHash state = 0;
  // Shards of step `applied` that are finished, and the state that they were computed from.
  std::map<uint32_t, uint64_t> folded;
  StateHash folded_from = 0;
  std::map<uint64_t, StateHash> copies;  // for checkpoints, until they are durable
  std::vector<Frame> late_frames;        // bytes of an older generation, still in a socket buffer
  // What heartbeats show.
  std::string phase = "idle";
  uint64_t progress = 0;

  [[nodiscard]] uint64_t total() const { return resolved.result().total_steps(); }
};

class ToyRun : public std::enable_shared_from_this<ToyRun> {
 public:
  struct Self {
    Cluster* cluster = nullptr;
    LifePtr life;
    int host = 0;
    std::string name, incarnation;
    uint32_t cores = 1;
    bool odd = false;                  // computes other bits
    std::string instructions;          // of its class
    const Time* hung_until = nullptr;  // a computation stands still until then
  };

  ToyRun(Self self, ToyJob* job, v1::Start start, std::function<void(worker::Event)> post);
  ~ToyRun();

  void Begin();
  void Stop(worker::RunStop when);
  // Frames, also of other generations: they are refused here.
  void Receive(const Frame& frame);
  [[nodiscard]] ToyRing* ring() { return ring_.get(); }
  [[nodiscard]] bool over() const { return over_; }
  [[nodiscard]] const v1::Start& start() const { return start_; }
  // That it is at: without the state of it while it follows.
  [[nodiscard]] uint64_t step() const { return follows_ ? at_ : job_->applied; }

 private:
  enum class Phase { kFetching, kConnecting, kIdle, kComputing, kExchanging, kUpdating, kLeaving };

  void After(Time delay, std::function<void(ToyRun&)> what);
  void End(worker::Outcome outcome, const std::string& reason = "", const std::string& peer = "");
  [[nodiscard]] bool EndsHere();

  // Getting S(K).
  void CatchUp();
  void FetchNext();
  void AskSource(int host, const std::string& name);
  void AskFolder();
  void SourceLost();
  void Adopt(uint64_t step, StateHash state);
  void Follow();
  void BecomeWhole(uint64_t step, StateHash state);
  void Watch();
  void Connect();
  void Connected();
  void Join();
  void Lost(const std::string& peer, const std::string& reason, bool left);
  // A step.
  void KeepFolded();
  void NextStep();
  void ComputeNext();
  void SendOwn();
  void CheckComplete();
  void Apply();
  void Farewell();
  void Finish();
  [[nodiscard]] bool CheckpointDue() const;
  void SaveCheckpoint();
  void TakeSnapshot();

  const Self self_;
  ToyJob* const job_;
  const v1::Start start_;
  const GenerationId generation_;
  const std::function<void(worker::Event)> post_;
  uint32_t rank_ = 0;
  std::vector<uint32_t> shards_;
  bool keeps_copies_ = false;  // for checkpoints
  std::vector<int> sources_;   // ranks that hold S(K)
  size_t next_source_ = 0;
  ConnectionPtr source_;
  Time fetch_begun_{0};
  Time source_heard_{0};
  bool follows_ = false;                                // without the state
  uint64_t at_ = 0;                                     // the step, while it follows
  std::map<uint64_t, std::vector<Contribution>> sums_;  // of the steps since K, while it follows

  std::shared_ptr<ToyRing> ring_;
  std::shared_ptr<Courier> courier_;  // of the first member
  Phase phase_ = Phase::kIdle;
  std::optional<worker::RunStop> stop_;
  bool over_ = false;
  bool left_by_peer_ = false;
  bool ends_ = false;          // a member asked for this boundary: all of them end here
  bool awaits_fence_ = false;  // it did, and the fence did not come here yet
  bool farewell_ = false;      // in the round after the last step
  bool finishing_ = false;     // after it
  bool own_sent_ = false;
  uint64_t update_ = 0;                 // number of the update under way
  std::map<uint32_t, uint64_t> again_;  // of a planted bug: folded twice
  std::map<uint64_t, std::map<uint32_t, std::vector<Contribution>>> inbox_;  // by round, by rank
  std::set<std::pair<uint64_t, uint32_t>> asking_;  // for the boundary: round and rank
};

}  // namespace ringmaster::sim
