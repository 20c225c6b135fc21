// One job on its workers, from Inspect to the last JobFinished, through every change of its ring:
// the protocol at the top of fleet.proto and docs/regroup.md. Owned by Logic, loop thread only. It
// sends and checks; that a job fails, and what then becomes of its workers, is Logic's: functions
// that take a message return no fault, or the one for which the job cannot go on.
//
// What happened is written down by the On... functions, each short; what follows from it is decided
// in one place, Settle, which Logic calls after each of them. It is a state machine: Step calls the
// one step function of its phase, and Become alone changes the phase, by the table in phase.h
// (docs/life_of_a_job.md shows it). A step function may change:
//
//   inspecting  StepInspecting  run_start.cc    what the job is resolved to; who is prepared
//   preparing   StepPreparing   run_start.cc    known shards, the first class map; who is ready
//   fencing     StepFencing     run_regroup.cc  who is in; class maps; the newest generation
//   running     StepRunning     run_steps.cc    the reason; it begins fences
//   waiting     StepWaiting     run_waiting.cc  the reason, how long a holder is waited for
//   searching   StepSearching   run_waiting.cc  nothing; the answer comes by OnCheckpointFound
//   saving      StepSaving      run_waiting.cc  nothing; it asks the holder again
//   adopting    StepAdopting    run_waiting.cc  the reason; who is not back is lost
//   stopping    StepStopping    run.cc          who did not stop in time
//
// What it decides by values of their own is in Membership (who there is), Fence (a regroup, whom it
// waits for, bad links), StateCustody (where the newest state is), RunReport (what is shown). The
// rest in files: run_members.cc who comes and goes and which numerics classes share the job,
// run_heard.cc what members say while the ring runs and states with wrong bits, run.cc Settle,
// Become and what is told.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/job/balance.h"
#include "common/job/class_map.h"
#include "common/status.h"
#include "coordinator/logic/action.h"
#include "coordinator/logic/checkpoints.h"
#include "coordinator/logic/event.h"
#include "coordinator/logic/fleet.h"
#include "coordinator/logic/options.h"
#include "coordinator/logic/record.h"
#include "coordinator/logic/run/agreement.h"
#include "coordinator/logic/run/failure.h"
#include "coordinator/logic/run/fence.h"
#include "coordinator/logic/run/member.h"
#include "coordinator/logic/run/phase.h"
#include "coordinator/logic/run/ring.h"
#include "coordinator/logic/run/run_report.h"
#include "coordinator/logic/run/state_custody.h"
#include "ringmaster/v1/fleet.pb.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::coordinator {

// A worker that the run has let go.
struct Departure {
  SessionId session{};
  bool evicted = false;  // its session ends, too; else it is released
  bool data_differs = false;
  std::string reason;
};

class Run {
 public:
  // A run of `job` without workers; what it refers to outlives it.
  Run(const Options& options, GenerationSource& generations, PhaseCounts& phase_counts,
      const JobRecord& job);

  // ---- who comes and goes -----------------------------------------------------------------------
  void Begin(const std::vector<const Worker*>& workers, Now now, Actions& actions);  // the first
  // Before Begin, of a job whose spec has an init and that is not resolved: where it is.
  void BeginWith(v1::InitSource init) { init_ = std::move(init); }
  void Join(const Worker& worker, Now now, Actions& actions);  // beside the running ring
  // After a restart: the generation that is stored may still run.
  void Adopt(const JobRecord& job, Now now);
  // Whether a worker that attaches may keep what it holds of this job; and that it does.
  [[nodiscard]] bool MayReturn(const v1::Attach& attach) const;
  void Return(const Worker& worker, Now now, Actions& actions);
  // A worker attached that holds nothing of this job.
  void OnStranger(const v1::Attach& attach, Now now);
  void OnLost(const std::string& worker, const std::string& why, uint64_t applied);
  // It is to leave at a step boundary, or, `stays`, not after all.
  void Leave(const std::string& worker, const std::string& why);
  void Stay(const std::string& worker);
  void Stop(const std::string& reason, Now now, Actions& actions);  // sends Cancel
  // A worker could not take part: the job goes on without it.
  void RefuseJoiner(std::string worker, const std::string& why, Now now);

  // ---- what workers say. A message of another phase or generation is old and ignored ------------
  void OnHeard(const std::string& worker, Now now);
  [[nodiscard]] Fault OnInspected(Member& from, const v1::Inspected& said, Now now,
                                  Actions& actions);
  [[nodiscard]] Fault OnPrepared(Member& from, const v1::Prepared& said, Now now);
  [[nodiscard]] Fault OnFenceAck(Member& from, const v1::FenceAck& said);
  void OnJoined(Member& from, const v1::Joined& said, Now now);
  [[nodiscard]] Fault OnProgress(Member& from, const v1::Progress& said, Now now);
  [[nodiscard]] Fault OnFinished(Member& from, const v1::JobFinished& said, Now now);
  void OnSuspicion(Member& from, const v1::Suspicion& said, Now now, Actions& actions);
  void OnSaved(Member& from, const v1::StateSaved& said, Now now);
  void OnHeartbeat(Member& from, const v1::Heartbeat& said, Now now);
  void OnPhase(Member& from, const v1::PhaseEntered& said, Now now);
  void OnStopped(Member& from);
  void OnDropped(const Member& from, const v1::CheckpointsDropped& said);

  // Its state is not what it wrote (STATE_DIFFERS).
  [[nodiscard]] Fault OnStateFault(const Member& from, const v1::JobFailed& said, Now now,
                                   Actions& actions);

  // A checkpoint of this job is in the store; `digest` is the one of its manifest, empty when it is
  // not known.
  void OnCheckpoint(const v1::CheckpointRef& ref, const std::string& digest, Actions& actions);
  // A member failed before anybody had the restored state: whether another checkpoint is looked
  // for.
  [[nodiscard]] bool RestoreAgain(const std::string& why, Now now, Actions& actions);
  // The answer to TakeSearch().
  [[nodiscard]] Fault OnCheckpointFound(const CheckpointFound& event, Now now);

  // Members that report their steps bring figures most of the time, from which nothing follows:
  // what all of them applied is counted when it is asked for.
  void CatchUp();
  // Whether something may follow from what was said since the last Settle, beside figures.
  [[nodiscard]] bool unsettled() const { return unsettled_ || has_news(); }
  // Decides what follows from all that was said so far.
  [[nodiscard]] Fault Settle(Now now, Actions& actions);
  // Time passed: the same, with everything that has a limit.
  [[nodiscard]] Fault OnTick(Now now, Actions& actions);
  // The coordinator itself was late by `late`.
  void Excuse(std::chrono::milliseconds late);

  // ---- what Logic asks --------------------------------------------------------------------------
  Member* Find(const std::string& worker);
  const Member* Find(const std::string& worker) const;
  const std::vector<Member>& members() const { return members_.all(); }
  Phase phase() const { return phase_; }
  bool started() const { return started_; }  // a generation was
  const GenerationId& generation() const { return generation_; }
  bool IsCurrent(const v1::Generation& id) const { return FromProto(id) == generation_; }
  bool InRing(const std::string& worker) const;
  // Its place in the ring, 0 writes checkpoints; nothing when it has none.
  [[nodiscard]] std::optional<size_t> RankOf(const std::string& worker) const;
  // Whether its state of that step came about by class maps that the job has given up.
  [[nodiscard]] bool LedElsewhere(const Member& member, uint64_t step) const;
  uint64_t start_step() const { return start_step_; }  // K of the newest generation
  const std::optional<v1::InitSource>& init() const { return init_; }
  // Whether it was told to write the state that it holds alone.
  bool Saves(const std::string& worker) const {
    return phase_ == Phase::kSaving && custody_.saver() == worker;
  }
  // Who holds, or will hold, a snapshot of this step beside `writer`, as far as it need not have
  // told it (SnapshotTaken): empty when there is nobody, a sentence when it cannot be said now.
  struct OtherHolder {
    std::string worker, unknown;
  };
  [[nodiscard]] OtherHolder FindOtherHolder(const std::string& writer, uint64_t step) const;
  // Who of the ring, beside `writer` and who told a snapshot of it, has not said yet that it holds
  // S(step): its state of the step before may have been wrong. Empty: nobody.
  [[nodiscard]] std::string FindBehind(const std::string& writer, uint64_t step,
                                       const std::vector<SnapshotReport>& told) const;
  // States after this step may have wrong bits, so no checkpoint of one is kept, or taken in; once.
  [[nodiscard]] std::optional<uint64_t> TakeDistrusted();
  // They are gone; this one is left, step 0: none.
  void ForgetKept(const v1::CheckpointRef& newest) { custody_.ForgetKept(newest); }
  const std::optional<v1::ResolvedJob>& resolved() const { return resolved_; }
  uint64_t committed_step() const { return committed_; }  // applied by every member
  size_t room() const;                                    // so many more workers may join
  // Of each class of its map, by name: so many more, without regard to the others. It is resolved.
  [[nodiscard]] std::map<std::string, size_t> rooms() const;
  // Its class maps are others than at the last call, and with them the states behind this step.
  [[nodiscard]] std::optional<uint64_t> TakeMapsChanged() {
    return std::exchange(maps_changed_, std::nullopt);
  }
  // The next generation begins when the store has what DescribeNext says, and OnStored told it;
  // once.
  [[nodiscard]] bool TakeUnstored() { return std::exchange(unstored_, false); }
  // What a coordinator that starts again has to know of a job whose workers begin.
  void DescribeNext(Now now, JobRecord& record);
  void OnStored(const JobRecord& record);
  bool Barred(const v1::Attach& attach, Now now) const {
    return readmission_.Barred(attach.name(), attach.incarnation(), now);
  }
  // The first ring cannot start: why the job is to be queued again. Empty: it can.
  const std::string& requeue() const { return requeue_; }
  // Who was let go, and what happened, since the last call.
  [[nodiscard]] std::vector<Departure> TakeDepartures();
  [[nodiscard]] std::vector<Happening> TakeHappenings();
  [[nodiscard]] bool TakeBarEnded(Now now) { return readmission_.TakeEnded(now); }
  bool has_news() const {
    return custody_.searches() || !told_.empty() || !departures_.empty() || !requeue_.empty() ||
           unstored_;
  }
  // A checkpoint is to be searched for; once.
  [[nodiscard]] bool TakeSearch() { return custody_.TakeSearch(); }

  // Copies what the run knows into a status: step, metrics, generation, workers, regroups, phases
  // of starting.
  void Describe(Now now, v1::JobStatus& status) const;
  // RUNNING or WAITING with its reason; the state it had while the ring is being formed.
  v1::JobState state() const { return state_; }
  const std::string& reason() const { return reason_; }
  // Of a job that was cancelled: whether somebody did not stop in time, and what is lost.
  [[nodiscard]] std::string DescribeEnd() const;
  // Of a job that is done: why before its last step; empty when not.
  [[nodiscard]] std::string DescribeStop() const;
  // What would let a WAITING job go on, beside workers that are there (AdviseWaiting).
  [[nodiscard]] std::vector<std::string> Advise(Now now) const;
  // So many workers of these classes, by name, beside those that are ready or on their way.
  struct Lacking {
    size_t workers = 0;
    std::set<std::string> classes;
  };
  [[nodiscard]] Lacking FindLacking(Now now) const;
  const std::string& job_id() const { return job_id_; }
  // That its members have (HasInterpreter); empty: it runs no script.
  [[nodiscard]] std::string interpreter() const;
  // What `member` does now: its phase of starting, or what its step thread does.
  [[nodiscard]] std::string PhaseOf(const Member& member) const;
  StartPhases& phases() { return phases_; }
  const StartPhases& phases() const { return phases_; }
  MetricHistory& history() { return report_.history(); }
  std::chrono::milliseconds begun() const { return begun_; }

 private:
  static constexpr char kJobSubject[] = "job";  // of an event that is about no worker

  // run_members.cc
  Member& Add(const Worker& worker, Role role, Now now);
  void Remove(const std::string& worker);
  void LetGo(std::string worker, bool evicted, const std::string& reason);
  void Evict(std::string worker, const std::string& why, Now now);

  // run.cc
  const Member* At(const Place& place) const;  // null: that process is not here
  Member* At(const Place& place);
  // The one place where phase_ changes: what it means to leave the one and to be in the other. What
  // is not in kTransitions is told as a bug of the coordinator.
  void Become(Phase next, Now now);
  std::chrono::milliseconds LimitOf(Phase phase) const;
  void GiveTime(std::chrono::milliseconds limit, Now now);  // to the phase, from now on
  void Tell(const char* type, Severity severity, std::string message, const std::string& subject);
  void Send(const Member& member, const v1::CoordinatorMessage& message, Actions& actions) const;
  void SendAll(const v1::CoordinatorMessage& message, Actions& actions) const;
  Fault Step(Now now, Actions& actions);  // the one of its phase
  void StepStopping(Now now);

  // run_start.cc
  void SendInspect(const Member& member, Actions& actions) const;
  void AddPeers(const Member& member, v1::Inspect& inspect) const;
  void SendPrepare(Member& member, Now now, Actions& actions);
  void KeepKnownShards();
  [[nodiscard]] Status CheckInit(const Member& member) const;
  [[nodiscard]] Status CheckDataset(Member& member, const std::string& other) const;
  [[nodiscard]] Status CheckScript(const Member& member, const std::string& other) const;
  Fault StepInspecting(Now now, Actions& actions);
  Fault StepPreparing(Now now, Actions& actions);
  Fault ResolveFacts();
  Fault CompareScripts();
  Fault CompareDatasets();
  Fault CompareInits();
  void TellOverruled(const v1::ScriptFacts& script);
  void TakeResolved(v1::ResolvedJob resolved);
  void TakeSizes();
  Fault DataDiffer(const Status& how);
  bool LacksWorkers();
  Fault CheckKnownShard(const Member& member) const;

  // run_members.cc: classes
  const v1::ClassMap& map() const;  // by which it goes on; it is resolved
  bool repeats() const { return !like_job_.empty(); }
  void ChooseMap(uint64_t step, bool evaluated);
  bool NextMapBegins() const;
  const v1::KnownShard* KnownShardOf(const std::string& class_name) const;  // null: not known
  // Scripts of several classes draw S(0) by libraries of their own: that of the map's first class
  // counts, and the others fetch it as one that joins does.
  bool ClassesDraw() const { return mixes_ && spec_.has_script(); }
  bool Holds(const Member& member, uint64_t step) const;
  bool MayFollow(const Member& member, uint64_t step) const;  // a ring of whom one holds S(step)
  Status MakeFirstMap();
  bool MeasureFirstMap();
  std::vector<std::string> MemberNames() const;
  enum class Measured : uint8_t { kNo, kYes };
  std::vector<job::ClassSpeed> SpeedsOf(const std::vector<std::string>& names,
                                        Measured measured) const;
  void TellMap(const v1::ClassMap& map, const std::vector<std::string>& left_out);
  void LetClassesGo(const std::vector<std::string>& left_out);
  std::vector<std::string> MissingClasses(const std::vector<std::string>& names) const;
  bool Enough(const std::vector<std::string>& names) const;
  std::vector<std::string> ReadyNames(Now now) const;  // who may be in the next generation
  bool EnoughReady(Now now) const { return Enough(ReadyNames(now)); }
  std::vector<std::string> MissingReady(Now now) const { return MissingClasses(ReadyNames(now)); }
  std::vector<std::string> ChooseSeats(const std::vector<std::string>& names) const;
  void FallBack(std::vector<std::string>& names, uint64_t step, bool evaluated);
  bool MayFallBack() const {  // before the first step a class that draws S(0) is waited for
    return spec_.workers().mix() == v1::MIX_FALLBACK && !repeats() &&
           !(ClassesDraw() && committed_ == 0);
  }

  // run_regroup.cc
  bool Eligible(const Member& member, Now now) const;
  auto MayJoin(Now now) const {
    return [this, now](const Member& member) { return Eligible(member, now); };
  }
  size_t CountEligible(Now now) const;
  void BeginFence(FenceWhen when, const std::string& reason, Now now, Actions& actions);
  void SendFence(const Member& member, FenceWhen when, Actions& actions) const;
  Fault StepFencing(Now now, Actions& actions);
  Fault Conclude(Now now, Actions& actions);
  bool EnsureStored();
  std::vector<std::string> TakeSeats(std::vector<std::string> names, Now now);
  void LeaveOutAccused(std::vector<std::string>& names, Now now);
  void TellUnanswered(Now now);
  uint64_t StepFor(const std::vector<std::string>& names) const;

  // Start
  void SendStart(const std::vector<std::string>& names, Now now, Actions& actions);
  void SendAllStart(bool restores, Actions& actions);
  void BeginGeneration();
  // Who came and who went between two rings.
  struct Change {
    std::vector<std::string> lost, left, joined;
  };
  Change Compare(const std::vector<Place>& before) const;
  void TellRegroup(const Change& change, const v1::Regroup& record);
  void RecordRewind(uint64_t from, bool restores);
  void RecordRegroup(const std::vector<Place>& before, const Assignment& assignment,
                     uint64_t rewound_from, Now now);
  uint32_t CountRecomputed(const std::vector<Place>& before) const;

  // run_heard.cc: states with wrong bits
  Fault LeaveFor(const std::vector<std::string>& names, uint64_t good, const std::string& reason,
                 Now now, Actions& actions);
  bool IsSpoilt(const GenerationId& ran, uint64_t applied) const;
  void LeaveOutSpoilt(std::vector<std::string>& names);
  void OnDisagreement(uint64_t step, const Status& how);
  Fault AskAboutDisagreement(Now now, Actions& actions);
  Fault SettleDisagreement(Now now, Actions& actions);

  // run_steps.cc
  Fault StepRunning(Now now, Actions& actions);
  std::optional<std::string> FindLost(Now now);
  std::optional<std::string> FindIdle(Now now) const;
  bool LacksLastCheckpoint(Now now);
  void ShowFinishing(Now now);
  bool FenceAtOnce(Now now, Actions& actions);
  bool RingJoined() const;
  bool AnyFollows() const;
  bool AwaitsHeir() const;
  std::string FindWhole() const;  // why the ring is to be dealt anew; empty: it is not
  void RegroupComers(Now now, Actions& actions);
  void EvictFrozen(Now now);

  // run_steps.cc: shards follow speed
  // The ring's members of a class, and the seconds until the last one has its shards: as it is, and
  // by speed without the slow ones, if any need not be there.
  struct ClassPace {
    std::vector<const Member*> members;
    std::vector<uint32_t> counts;
    std::vector<job::Pace> paces;
    double now = 0, best = 0;
    std::vector<std::string> slow;
  };
  void MeasurePace(Member& member);
  std::optional<ClassPace> PaceOfClass(const v1::MappedClass& its, size_t spare) const;
  std::string FindBalance(Now now);  // why the ring is to be formed again; empty: it is not
  void LeaveOutSlow(std::vector<std::string>& names, Now now);
  double KnownPace(const Member& member) const;
  void DescribeLeftOut(v1::JobStatus& status) const;

  // run_heard.cc
  Fault CheckDigest(const Member& from, uint64_t step, const std::string& digest);
  // Of a report by a member that holds S(applied).
  Fault CheckDigests(const Member& from, uint64_t applied,
                     const google::protobuf::RepeatedPtrField<v1::StepDigest>& said);
  Fault CheckEnd(Now now);
  void RaiseCommitted();
  bool AnyFinished() const { return finished_ > 0; }
  // Where the job ends: where a member finished, else after all of its steps.
  uint64_t EndStep() const;
  bool MayEndAt(uint64_t step) const;

  // run_waiting.cc
  void StepWaiting(Now now, Actions& actions);
  void StepSearching(Now now);
  void StepSaving(Now now, Actions& actions);
  void StepAdopting(Now now, Actions& actions);
  void TakeOver(Now now);
  bool SaveBeforeLeaving(Now now, Actions& actions);
  void AskToSave(const Member& holder, Now now, Actions& actions);
  void ReleaseLeavers();
  bool NewestIsHere(Now now) const;
  void LiftBars(Now now, Actions& actions);
  std::string LacksReason(Now now) const;

  // run.cc: what is told
  std::vector<std::string> AdviseFinishing() const;
  void DescribeResolved(v1::JobStatus& status) const;
  void DescribeWorkers(v1::JobStatus& status) const;
  std::vector<Place> PlannedPlaces() const;

  const Options& options_;
  GenerationSource& generations_;
  PhaseCounts& phase_counts_;
  const std::string job_id_;
  const v1::JobSpec spec_;
  const size_t min_;
  const bool mixes_;      // workers of several classes may share it
  const bool continues_;  // that one's result is not its own: without it there is no S(0)
  const bool restores_;   // it begins with another job's checkpoint

  // Of a job of a script as far as its spec says it, until it is resolved.
  uint32_t shards_;
  size_t most_;          // members of a ring
  Membership members_;   // and the places of the newest generation's ring
  size_t finished_ = 0;  // of the members
  Phase phase_ = Phase::kNew;
  std::chrono::milliseconds begun_{0};
  std::chrono::milliseconds limit_{0};
  std::chrono::milliseconds deadline_{0};
  bool ticks_ = false;  // time passed: those who became ready since the last tick enter now
  StartPhases phases_{{}};
  v1::JobState state_ = v1::JOB_STATE_STARTING;
  std::string reason_;
  std::string requeue_;
  std::string last_loss_;       // a sentence
  std::set<std::string> left_;  // who left, and was not lost, since the ring was formed
  std::vector<Departure> departures_;
  std::vector<Happening> told_;

  // What every member must have.
  std::optional<v1::ResolvedJob> resolved_;
  const std::string like_job_;            // whose class maps it repeats
  int map_ = 0;                           // of the class maps, by which it goes on
  bool map_due_ = false;                  // its first class map is made when all were measured
  std::optional<uint64_t> maps_changed_;  // since TakeMapsChanged: from which step on
  std::string stored_maps_, asked_maps_;  // all of those that the store has, and is to have
  GenerationId asked_generation_;         // with them, of a job that has not started
  bool unstored_ = false;                 // since TakeUnstored
  std::optional<v1::InitSource> init_;    // none of a job that resumes another one

  // The newest generation.
  bool started_ = false;
  GenerationId generation_;
  uint64_t start_step_ = 0;
  std::chrono::milliseconds started_at_{0};

  // The next one.
  Fence fence_;
  Readmission readmission_;

  // Who computes how much.
  struct SlowWorker {
    std::string incarnation;
    v1::JobWorker told;  // as it was then
  };
  std::map<std::string, SlowWorker> slow_;  // that were left out
  std::vector<std::string> too_slow_;       // are left out of the next generation
  std::chrono::milliseconds balance_at_{0}, balance_pause_{0};  // when it is looked at next

  StateCustody custody_;
  RunReport report_;

  bool unsettled_ = false;
  bool behind_ = false;  // committed_, of reports
  uint64_t committed_ = 0;
  StateDigests digests_;

  // States with wrong bits. What was applied in generations up to this one after this step.
  struct Spoilt {
    GenerationId generation;
    uint64_t step = 0;
  };
  std::optional<Spoilt> spoilt_;
  // Digests that differ, first at this step; `asked`: a fence was sent for it.
  struct Disagreement {
    uint64_t step = 0;
    Fault fault;
    bool asked = false;
  };
  std::optional<Disagreement> disagreement_;
  std::optional<uint64_t> distrusted_;
  std::optional<std::chrono::milliseconds> all_finished_at_;
  std::chrono::milliseconds finish_pause_{0};  // before it is asked for again; 0: it was not yet
  std::string unstopped_;                      // who did not stop in time
};

}  // namespace ringmaster::coordinator
