// One job on its workers, from Inspect to the last JobFinished: the protocol at the top of
// fleet.proto. Owned by Logic, loop thread only. It sends and checks; that a job fails, and what
// then becomes of its workers, is Logic's: every function that takes a message returns OK, or the
// reason why the job cannot go on.
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
#include "coordinator/logic/options.h"
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
  std::string phase;      // Heartbeat.phase

  const std::string& name() const { return attach.name(); }
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
  [[nodiscard]] Status OnInspected(Member& from, const v1::Inspected& said, Now now,
                                   Actions& actions);
  [[nodiscard]] Status OnPrepared(Member& from, const v1::Prepared& said, Now now,
                                  Actions& actions);
  [[nodiscard]] Status OnFenceAck(Member& from, const v1::FenceAck& said, Now now,
                                  Actions& actions);
  [[nodiscard]] Status OnProgress(Member& from, const v1::Progress& said, Now now);
  [[nodiscard]] Status OnFinished(Member& from, const v1::JobFinished& said, Now now);
  void OnHeartbeat(Member& from, const v1::Heartbeat& said, Now now);
  void OnStopped(Member& from);
  // A checkpoint of this job is in the store; `digest` is the one of its manifest.
  [[nodiscard]] Status OnCheckpoint(const v1::CheckpointRef& ref, const std::string& digest);

  // The reason why the phase has lasted too long, naming who is waited for; OK while it has not.
  [[nodiscard]] Status CheckDeadline(Now now) const;

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

  // Copies what the run knows into a status: step, metrics, generation, workers.
  void Describe(v1::JobStatus& status) const;

 private:
  void Enter(Phase phase, std::chrono::milliseconds limit, Now now);
  void SendAll(const v1::CoordinatorMessage& message, Actions& actions) const;
  Status SendPrepare(Now now, Actions& actions);
  void SendFence(Now now, Actions& actions);
  void SendStart(uint64_t step, Now now, Actions& actions);
  Status CheckDigest(const std::string& worker, uint64_t step, const std::string& digest);
  Status CheckEnd();
  void RaiseCommitted();
  bool AnyFinished() const;
  bool WaitsFor(const Member& member) const;
  std::string NamesWaitedFor() const;

  const Options& options_;
  const std::string job_id_;
  const v1::JobSpec spec_;
  const GenerationId generation_;

  std::vector<Member> members_;
  Phase phase_ = Phase::kInspecting;
  bool started_ = false;
  std::chrono::milliseconds limit_{0};
  std::chrono::milliseconds deadline_{0};
  std::optional<v1::ResolvedJob> resolved_;
  uint64_t committed_ = 0;
  v1::Progress newest_;  // of the member that is furthest
  struct Witness {
    std::string worker, digest;
  };
  std::map<uint64_t, Witness> digests_;       // by step, the last few
  std::optional<std::string> last_manifest_;  // SHA-256 of the one of the last step
  std::string last_digest_;                   // hex, in it
};

}  // namespace ringmaster::coordinator
