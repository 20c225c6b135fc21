// One job on its workers, from Inspect to the last JobFinished: the protocol at the top of
// fleet.proto. Owned by Logic, loop thread only. It sends and checks; that a job fails, and what
// then becomes of its workers, is Logic's: every function that takes a message returns no fault, or
// the one for which the job cannot go on. run.cc has the protocol, run_status.cc what is told of
// it.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/job/shards.h"
#include "common/status.h"
#include "coordinator/logic/action.h"
#include "coordinator/logic/event.h"
#include "coordinator/logic/failure.h"
#include "coordinator/logic/options.h"
#include "coordinator/logic/start_phases.h"
#include "ringmaster/v1/fleet.pb.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::coordinator {

// A worker's place in the ring.
struct Member {
  v1::Attach attach;
  SessionId session{};
  job::Range shards;
  std::optional<v1::DatasetFacts> facts;
  std::optional<v1::Prepared> prepared;
  std::optional<v1::FenceAck> fenced;
  std::optional<v1::JobFinished> finished;
  bool stopped = false;
  v1::Progress progress;  // the newest of this generation
  uint64_t work = 0;      // Heartbeat.progress
  std::string phase;      // Heartbeat.phase, shortened

  const std::string& name() const { return attach.name(); }
  // `worker w2 on host node-b`
  std::string called() const { return Called(attach.name(), attach.host()); }
};

enum class Phase { kInspecting, kPreparing, kFencing, kRunning, kStopping, kDone };

class Run {
 public:
  // `members` in ring order, at least one, at most as many as there are shards.
  Run(const Options& options, const v1::JobStatus& job, GenerationId generation,
      std::vector<Member> members);

  void Begin(Now now, Actions& actions);                            // sends Inspect
  void Stop(const std::string& reason, Now now, Actions& actions);  // sends Cancel

  // What a member said. A message of another phase or generation is old and ignored.
  [[nodiscard]] Fault OnInspected(Member& from, const v1::Inspected& said, Now now,
                                  Actions& actions);
  [[nodiscard]] Fault OnPrepared(Member& from, const v1::Prepared& said, Now now, Actions& actions);
  [[nodiscard]] Fault OnFenceAck(Member& from, const v1::FenceAck& said, Now now, Actions& actions);
  [[nodiscard]] Fault OnProgress(Member& from, const v1::Progress& said, Now now);
  [[nodiscard]] Fault OnFinished(Member& from, const v1::JobFinished& said, Now now);
  void OnHeartbeat(Member& from, const v1::Heartbeat& said, Now now);
  void OnPhase(Member& from, const v1::PhaseEntered& said, Now now);
  void OnStopped(Member& from);
  // A checkpoint of this job is in the store; `digest` is the one of its manifest.
  [[nodiscard]] Fault OnCheckpoint(const v1::CheckpointRef& ref, const std::string& digest);

  // The reason why the phase has lasted too long, naming who is waited for and what they do; no
  // fault while it has not.
  [[nodiscard]] Fault CheckDeadline(Now now) const;

  // The coordinator itself was late by `late`.
  void Excuse(std::chrono::milliseconds late) { deadline_ += late; }

  Member* Find(const std::string& worker);
  const std::vector<Member>& members() const { return members_; }
  Phase phase() const { return phase_; }
  const GenerationId& generation() const { return generation_; }
  bool IsCurrent(const v1::Generation& generation) const;
  const std::optional<v1::ResolvedJob>& resolved() const { return resolved_; }
  bool started() const { return started_; }               // Start was sent
  uint64_t committed_step() const { return committed_; }  // applied by every member

  // Copies what the run knows into a status: step, metrics, generation, workers, phases of
  // starting.
  void Describe(Now now, v1::JobStatus& status) const;
  // What `member` does now: its phase of starting, or what its step thread does.
  [[nodiscard]] std::string PhaseOf(const Member& member) const;
  StartPhases& phases() { return phases_; }
  std::chrono::milliseconds begun() const { return begun_; }

 private:
  static v1::Generation ToProto(const GenerationId& id);
  void Enter(Phase phase, std::chrono::milliseconds limit, Now now);
  void SendAll(const v1::CoordinatorMessage& message, Actions& actions) const;
  Fault SendPrepare(Now now, Actions& actions);
  void SendFence(Now now, Actions& actions);
  void SendStart(uint64_t step, Now now, Actions& actions);
  Fault CheckDigest(const std::string& worker, uint64_t step, const std::string& digest);
  Fault CheckEnd();
  size_t PlaceOf(const Member& member) const { return &member - members_.data(); }
  void DescribeProgress(v1::JobStatus& status) const;
  void RaiseCommitted();
  bool AnyFinished() const;
  bool WaitsFor(const Member& member) const;
  std::vector<const Member*> WaitedFor() const;

  const Options& options_;
  const std::string job_id_;
  const v1::JobSpec spec_;
  const GenerationId generation_;

  std::vector<Member> members_;
  StartPhases phases_;
  std::chrono::milliseconds begun_{0};
  Phase phase_ = Phase::kInspecting;
  bool started_ = false;
  std::chrono::milliseconds limit_{0};
  std::chrono::milliseconds deadline_{0};
  std::optional<v1::ResolvedJob> resolved_;
  uint64_t committed_ = 0;
  uint64_t skipped_ = 0;  // of those steps
  v1::Progress newest_;   // of the member that is furthest
  int64_t newest_unix_ms_ = 0;
  struct Witness {
    std::string worker, digest;
  };
  std::map<uint64_t, Witness> digests_;       // by step, the last few
  std::optional<std::string> last_manifest_;  // SHA-256 of the one of the last step
  std::string last_digest_;                   // hex, in it
};

}  // namespace ringmaster::coordinator
