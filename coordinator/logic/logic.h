// The coordinator's brain: Step(event, now) -> actions. Owned by Executor, loop thread only. It
// has no gRPC, threads, clock, disk or logging: what happened comes in as an event, what is to be
// done goes out as actions in order, and every decision carries its reason.
//
// A job goes on through every loss for which somebody has its state, or a checkpoint (Run).
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/logic/action.h"
#include "coordinator/logic/bench.h"
#include "coordinator/logic/checkpoints.h"
#include "coordinator/logic/event.h"
#include "coordinator/logic/fleet.h"
#include "coordinator/logic/job.h"
#include "coordinator/logic/options.h"
#include "coordinator/logic/record.h"
#include "coordinator/logic/run/failure.h"
#include "coordinator/logic/run/run.h"
#include "coordinator/logic/scheduler.h"

namespace ringmaster::coordinator {

// What the store held when the coordinator started.
struct Restored {
  uint64_t term = 0;  // of this reign
  std::vector<JobRecord> jobs;
  std::vector<RemovedJob> removed;
  std::vector<CheckpointRecord> checkpoints;
  std::vector<DrainRecord> drains;
  std::vector<StrayCheckpoint> strays;
  std::vector<std::string> taken_ids;  // of jobs that left something, though the store forgot them
};

class Logic {
 public:
  explicit Logic(const Options& options);
  Logic(const Logic&) = delete;  // its jobs refer to it
  Logic& operator=(const Logic&) = delete;

  // Takes over what an earlier reign left (checkpoints of a job by step): first call, once. Jobs
  // whose ring was formed wait for their workers to attach again; others are queued again.
  [[nodiscard]] Actions Restore(const Restored& restored, Now now);
  // kComes: the next event is handled at once, and what the queue makes of both is decided then.
  enum class Next : uint8_t { kMayWait, kComes };
  [[nodiscard]] Actions Step(const Event& event, Now now, Next next = Next::kMayWait);
  // Of all runs since it started.
  [[nodiscard]] const PhaseCounts& phase_counts() const { return phase_counts_; }

 private:
  // A checkpoint on its way in.
  struct Upload {
    SessionId session{};
    std::string worker;
    v1::CheckpointBegin begin;
    std::chrono::milliseconds since{0}, limit{0};
    enum class Stage { kReceiving, kWaiting, kPlacing } stage = Stage::kReceiving;
    std::string manifest_sha256, digest;  // hex; from kWaiting on
    std::string waits_for;                // in kWaiting, a sentence
  };

  // A job that is being stored.
  struct Arriving {
    uint64_t number = 0;
    std::set<std::string> needs;  // JobsNeededBy
  };

  // One event each: logic_workers.cc has who attaches and leaves, and what workers say of their
  // jobs, logic_clients.cc the requests of clients, logic_checkpoints.cc checkpoints that come in,
  // logic_retention.cc which of them stay, and jobs that go, logic.cc the rest, with workers that
  // are measured without a job; logic_jobs.cc carries a job along, and one that is divided.
  void On(const SessionOpened& event);
  void On(const WorkerSaid& event);
  void On(const SessionClosed& event);
  void On(const SubmitAsked& event);
  void On(const CancelAsked& event);
  void On(const RemoveAsked& event);
  void On(const GraphAsked& event);
  void On(const FetchAsked& event);
  void On(const DrainAsked& event);
  void On(const BenchAsked& event);
  void On(const BenchDropped& event);
  void On(const UploadAsked& event);
  void On(const UploadVerified& event);
  void On(const UploadPlaced& event);
  void On(const UploadClosed& event);
  void On(const JobInserted& event);
  void On(const JobSaved& event);
  void On(const CheckpointInserted& event);
  void On(const CheckpointFound& event);
  void On(const CheckpointsRead& event);
  void On(const CheckpointRemoved& event);
  void On(const JobsRemoved& event);
  void On(const TermRaised& event);
  void On(const Tick& event);

  void Attach(SessionId session, const v1::Attach& attach);
  void Hear(Worker& worker, const v1::Heartbeat& heartbeat);
  // A message about the job that `worker` serves.
  void HearAboutJob(Worker& worker, const v1::WorkerMessage& message);
  void Refuse(SessionId session, Refusal refusal);
  // The session is over; its worker's job goes on without it.
  void Lose(SessionId session, const std::string& why);
  // What an attached worker still holds: it stays with its job, or is released from it.
  void TakeBack(Worker& worker);
  void KeepObeyed(const std::string& worker);
  void HearFailed(Job& job, const Member& from, const v1::JobFailed& said);
  void Leave(Worker& worker, const std::string& reason);
  // It wants to leave, and has no job: its session ends.
  void EndLeaving(Worker& worker);

  // Something happened to a job on workers: it goes on, ends, or is queued again.
  void Advance(Job& job, Fault fault);
  // By number.
  [[nodiscard]] std::vector<Job*> Unfinished() const;
  [[nodiscard]] Fault Search(Job& job);
  // nullptr: the job continues none, or that checkpoint is gone.
  [[nodiscard]] const CheckpointRecord* FindContinued(const JobRecord& record);
  // The file, or the checkpoint as it is now: of a job without a step its best, else its newest.
  [[nodiscard]] Status ChooseInit(const v1::Init& init, v1::InitSource* source);
  // The newest checkpoint of a job that ended, or that of a step.
  [[nodiscard]] Refusal ChooseContinued(const v1::Continue& wanted, v1::CheckpointSource* source);
  [[nodiscard]] Refusal Continue(const v1::JobSpec& spec, JobRecord& record);
  void Start(Job& job, const std::vector<std::string>& workers);
  // As FindJoiners.
  void AddJoiners(Job& job, const Supply* supply);
  void MarkJoining(Job& job);
  // After a restart.
  void Readopt(Job& job);
  // Ends a job as FAILED and says what to do about it.
  void Fail(Job& job, const Fault& fault);
  void Requeue(Job& job, std::string reason);  // often of the run, which ends
  // Takes the job from its workers and gives it a final state.
  void End(Job& job, v1::JobState state, const std::string& reason);
  void ReleaseWorkers(Job& job, const std::string& cancel_reason);
  enum class ItsData : uint8_t { kIsRight, kDiffers };
  void ReleaseWorker(const std::string& job_id, Worker& worker, ItsData data = ItsData::kIsRight);
  void LetGo(Job& job, const Departure& departure);
  // Starts what can start, gives every job that waits its reason.
  void Schedule();
  void StartQueued(Supply& supply);
  void ShowWorkers();
  v1::ListWorkersResponse ViewWorkers();
  void NameOutsiders(v1::ListWorkersResponse* view);
  void NameSlow(v1::ListWorkersResponse* view);
  void SetNow(Now now);
  void Excuse(std::chrono::milliseconds late);
  // It goes into the store, when it is its job's; else it is left as it is.
  void Adopt(const StrayCheckpoint& stray);
  void DropOldCheckpoints(Job& job);
  void DropCheckpointsAfter(Job& job, uint64_t step, const char* why);
  // Those that wait for it may go when what is read back is whole.
  void Retire(Job& job);
  void Retain(Job& job, const CheckpointRecord& record, const std::string& why);
  // The store could not be written when they were to go: again.
  void ForgetDistrusted(Job& job);
  [[nodiscard]] bool Arrives(const Job& job, uint64_t step) const;
  // Those of the job that another one that has not ended begins with, or goes on with until it has
  // a checkpoint of its own.
  [[nodiscard]] std::set<uint64_t> PinnedSteps(const std::string& job_id) const;
  // Why it stays, with its folds: `jobs` has the ids of all.
  [[nodiscard]] Refusal CheckRemoval(const Job& job, const std::vector<std::string>& jobs);
  // One of those that have not ended, or are being stored, and may need something of `job_id`.
  [[nodiscard]] std::string FindNeedy(const std::string& job_id) const;
  [[nodiscard]] RemovedJob TakeOut(const std::string& job_id);
  // What the store could not take when it was asked.
  void RemoveAgain();

  void Answer(Refusal refusal, const std::string& job_id = "");
  // What a submission asks for goes into a new record, or the refusal says why it cannot.
  [[nodiscard]] Refusal FillIn(const v1::SubmitRequest& submit, JobRecord& record);
  // Of a job that another one resolved: a checkpoint that is what that one began with, byte for
  // byte, whichever job has it.
  [[nodiscard]] Refusal FindSource(const std::string& other_id, JobRecord& record);
  // Whether a job that is asked for may have the weights of this one, where there is such a job.
  [[nodiscard]] Refusal CheckSource(const SubmitAsked& asked, const std::string& other_id);

  // A submission with the key of that job.
  void AnswerAgain(uint64_t number, const std::string& sha256);
  // What it has beside that is that of a new job.
  void Insert(JobRecord record, const std::string& description);
  void Cancel(Job& job);

  // logic_jobs.cc: folds
  void SubmitNextFold(Job& parent);
  // Shows the job as its folds are now: as much work as it has folds. Of many folds that change at
  // once it is called behind them, and they are held until then.
  void ShowFolds(const std::string& parent_id);
  void CancelFolds(const Job& parent);

  // logic.cc: measurements
  [[nodiscard]] Refusal ChooseBenched(const v1::AllReduceRequest& request,
                                      std::vector<Bench::Member>* members);
  void TickBench();
  // Once it is over: its workers are free, and what its caller is to be answered.
  std::optional<EndBench> SettleBench();

  [[nodiscard]] static Refusal NoSuchJob(const std::string& job_id);
  Job* Find(const std::string& job_id);
  Job& Add(const JobRecord& record);
  Job* JobOf(const Worker& worker);
  // Of another job, which `job` goes on from or begins with.
  [[nodiscard]] static bool ReadsFrom(const Job& job, const std::string& other_id);

  // logic_checkpoints.cc
  void HearSnapshot(Job& job, const Member& from, const v1::Snapshot& said,
                    const google::protobuf::RepeatedField<uint64_t>& held);
  // Whether this worker may upload this checkpoint, now.
  [[nodiscard]] Refusal CheckUpload(const UploadAsked& event);
  [[nodiscard]] Refusal CheckWriter(const Job& job, const Worker& worker,
                                    const v1::CheckpointBegin& begin) const;
  [[nodiscard]] Refusal CheckVerified(const UploadVerified& event, const Job& job) const;
  // Whose word the upload still waits for, as a sentence; empty: it is confirmed. The refusal says
  // why it never will be.
  [[nodiscard]] std::string WaitsFor(const Job& job, const Upload& upload, Refusal* refusal) const;
  // Places or refuses what waits, as far as that can be said now.
  void SettleUploads();
  void End(UploadId upload, Refusal refusal);
  // All that are not being placed, of a session or a job.
  void EndUploadsOf(SessionId session, const std::string& why);
  void EndUploadsOf(const Job& job);
  void EndOverdueUploads();

  const Options options_;
  Fleet fleet_;
  std::map<uint64_t, Job> jobs_;               // by number: the order of the queue
  std::map<uint64_t, Job*> unfinished_;        // of them
  std::map<std::string, uint64_t> numbers_;    // by id
  std::map<std::string, uint64_t> keys_;       // by idempotency key
  std::map<std::string, Arriving> inserting_;  // by idempotency key: what is not stored yet
  // Of jobs that were removed, by number: what was asked for with their keys. From the moment at
  // which that is decided on, whatever the store does.
  std::map<uint64_t, std::string> removed_;
  std::set<std::string> removing_;     // of them, by id: what the store may still have
  std::vector<RemoveJobs> unremoved_;  // of those: what it is to be asked again, not before then
  std::chrono::milliseconds remove_at_{0};
  std::set<std::string> taken_ids_;  // that no new job may have
  GenerationSource generations_;
  PhaseCounts phase_counts_;
  std::set<std::string> obeyed_;        // workers that this term was told to
  std::unique_ptr<Bench> bench_;        // one at a time, so that none disturbs another
  std::map<UploadId, Upload> uploads_;  // one a job, and those that are being placed
  bool fleet_changed_ = false;
  bool queue_changed_ = false;
  bool workers_unshown_ = false;
  bool figures_changed_ = false;  // nothing is decided by them
  bool folds_held_ = false;       // ShowFolds comes later
  std::chrono::milliseconds workers_shown_at_{0};

  SilenceClock silence_;

  // Of the step in progress.
  Now now_;
  Actions actions_;
  const Job::Desk desk_;  // of all jobs
};

}  // namespace ringmaster::coordinator
