// What must hold whatever happens, checked as it happens against the undisturbed run. The first
// broken rule ends the simulation. Owned by the Cluster; it sees everything and touches nothing.
//
//  1 every state that a worker applies, fetches, reports or uploads is the undisturbed run's by the
//    class maps that it was started with
//  2 a worker applies nothing of a generation older than one that it acknowledged a fence of
//  3 members that run one generation, known by its ticket, are never more than one step apart
//  4 a generation has one content, and only current members run it; no run begins below a state
//    that its worker holds; who follows has no shards, and applies nothing before it has the state
//  5 a worker obeys no term lower than the highest it has seen, also after it started again
//  6 the published step of a job never falls but after a Rewound regroup, or a restart
//  7 an acknowledged job exists, once, for ever; it fails for no reason (client.h, cluster.cc)
//  8 no worker is in two rings
//  9 a job has SUCCEEDED only with its last checkpoint in store and folder
// 10 members of a generation that end at a step boundary end at the same one: nobody begins a step
//    behind it
// 11 nothing that is answered, sent or shown, a checkpoint among it, runs ahead of what is stored;
// a
//    superseded checkpoint
//    goes when two newer ones were read back, first from the store, and is searched until then
// 12 a decision costs no more than some look-ups for each member; a worker's damaged file raises no
//    term; load alone is nobody's death; digests that differ are seen (sim_coordinator.cc)
// 13 a job's run goes only from phase to phase as coordinator/logic/run/phase.h says
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/ids.h"
#include "coordinator/logic/action.h"
#include "ringmaster/v1/fleet.pb.h"
#include "tests/sim/toy_state.h"

namespace ringmaster::sim {

struct Cluster;

class Oracle {
 public:
  explicit Oracle(Cluster* cluster) : cluster_(cluster) {}

  struct Who {
    int host = 0;
    std::string incarnation;
    auto operator<=>(const Who&) const = default;
  };

  // Workers.
  void OnResolved(const std::string& job, const v1::ResolvedJob& resolved);
  void OnHeard(const Who& who, const v1::CoordinatorMessage& message);
  void OnTermSaved(const Who& who, uint64_t term);
  // Whatever it says of its state, and that it stopped applying.
  void OnSaid(const Who& who, const v1::WorkerMessage& message);
  void OnRunBegin(const Who& who, const v1::Start& start, uint64_t applied);
  void OnStep(const Who& who, const v1::Start& start, uint64_t step);  // it begins to compute it
  void OnBoundary(const Who& who, const v1::Start& start, uint64_t applied);  // it ends there
  // One that follows has the state of the step that it is at.
  void OnWhole(const Who& who, const v1::Start& start, uint64_t step, StateHash state);
  void OnApply(const Who& who, const v1::Start& start, uint64_t applied, StateHash state);

  // The coordinator.
  void OnReign();
  void OnStart(const v1::Start& start);
  // Any message to the process `who`: what it is released from it is in no more.
  void OnSent(const std::string& worker, const v1::CoordinatorMessage& message);
  void OnPublished(const coordinator::JobView& view);
  void OnWorkers(const v1::ListWorkersResponse& workers) { workers_ = workers; }
  void OnCheckpoint(const std::string& job, uint64_t step, StateHash state);
  void OnDecided(uint64_t work);  // one event: members that were looked up
  // An older copy of the store was put back: what it does not know is forgiven.
  void OnStoreRestored();
  // A coordinator that starts found it in its folder alone: so would the next one.
  void OnStray(const std::string& job, uint64_t step);

  [[nodiscard]] std::optional<v1::JobStatus> StatusOf(const std::string& job) const;
  // Null: it has none.
  [[nodiscard]] const v1::Start* NewestStart(const std::string& job) const {
    const auto start = newest_starts_.find(job);
    return start == newest_starts_.end() ? nullptr : &start->second;
  }
  [[nodiscard]] const v1::ListWorkersResponse& workers() const { return workers_; }
  // Rule 9, for a job that is said to have succeeded.
  void CheckSucceeded(const std::string& job);
  // How often it happened, for tests that show that a seed reached something.
  struct Counts {
    uint64_t applied = 0, fetched_or_restored = 0, generations = 0, rewound = 0, kept_shards = 0;
    uint64_t followed = 0, whole = 0;
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  struct Known {
    v1::ResolvedJob resolved;
    // By the class maps, serialized: there are several where a class had no worker any more.
    std::map<std::string, std::vector<StateHash>> histories;
  };
  struct Shown {
    v1::JobStatus status;
    uint64_t rewinds = 0;
    uint64_t events = 0;  // the number of the newest
    bool fresh = true;    // of this reign: nothing was shown yet
  };
  // Of any maps that the job was ever started with.
  void CheckState(const std::string& job, uint64_t step, const std::string& digest,
                  const std::string& what);
  // Of these.
  void CheckStateBy(const ClassMaps& maps, const std::string& job, uint64_t step, StateHash state,
                    const std::string& what);
  const std::vector<StateHash>& HistoryOf(Known& job, const ClassMaps& maps);
  void OnFenceAck(const Who& who, const v1::FenceAck& ack);
  // `report` carries digests.
  template <typename Report>
  void CheckReport(const Who& who, const Report& report);
  void CheckFollowers(const v1::Start& start);
  void CheckOneRing(const v1::Start& start);
  // Whether another content of this generation is allowed: the store has forgotten the first one,
  // and none of its processes is in it again.
  [[nodiscard]] bool MayRepeat(const v1::Start& first, const v1::Start& again) const;
  void CheckSkew(const Who& who, const v1::Start& start, uint64_t applied);

  Cluster* const cluster_;
  std::map<std::string, Known> jobs_;
  std::map<std::string, Shown> shown_;
  std::set<std::pair<std::string, uint64_t>> strays_;  // of this reign
  std::map<std::pair<std::string, GenerationId>, v1::Start> starts_;
  std::vector<std::pair<std::string, GenerationId>> forgotten_;  // by a store that was put back
  std::map<Who, std::map<std::string, GenerationId>> acknowledged_;
  std::map<std::pair<Who, GenerationId>, uint64_t> heard_;  // fences: the term then
  std::map<std::string, v1::Start> newest_starts_;          // by job
  std::set<std::pair<Who, GenerationId>> lacking_;          // runs that follow without the state
  std::map<int, uint64_t> terms_;                           // by host: durable
  struct Reached {
    uint64_t begun = 0;                // 1 + the newest step that a member began
    std::optional<uint64_t> boundary;  // where the first one ended
  };
  std::map<std::string, Reached> reached_;  // by Start
  v1::ListWorkersResponse workers_;
  Counts counts_;
};

}  // namespace ringmaster::sim
