#include "coordinator/logic/logic.h"

#include <algorithm>
#include <utility>

#include "common/job/resolve.h"
#include "common/sha256.h"
#include "coordinator/logic/scheduler.h"

namespace ringmaster::coordinator {
namespace {

constexpr size_t kMaxKeyLength = 128;
// A step that comes this much after the one before it means that the coordinator itself stood still
// (a slow disk, a stopped process): no worker is accused for that time.
constexpr std::chrono::milliseconds kLate{500};

Refusal NoSuchJob(const std::string& job_id) {
  return {Error(absl::StatusCode::kNotFound, "there is no job {}", job_id.substr(0, 100)),
          "JOB_NOT_FOUND"};
}

}  // namespace

std::string MakeJobId(uint64_t number) { return fmt::format("j{:04}", number); }

bool IsFinal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

std::string StateName(v1::JobState state) {
  return v1::JobState_Name(state).substr(std::string("JOB_STATE_").size());
}

Actions Logic::Restore(const Restored& restored, Now now) {
  now_ = now;
  term_ = restored.term;
  for (const JobRecord& record : restored.jobs) {
    jobs_[record.number].record = record;
    numbers_[record.id()] = record.number;
    keys_[record.idempotency_key] = record.number;
  }
  for (const CheckpointRecord& checkpoint : restored.checkpoints) {
    Job* job = Find(checkpoint.job_id);
    if (job == nullptr) continue;
    job->checkpoints.push_back(checkpoint.ref);
    *job->record.status.mutable_checkpoint() = checkpoint.ref;
  }
  for (auto& [number, job] : jobs_) {
    const v1::JobState state = job.record.status.state();
    if (state != v1::JOB_STATE_QUEUED && !IsFinal(state)) {
      const bool cancelled = job.record.cancel_requested;
      End(job, cancelled ? v1::JOB_STATE_CANCELLED : v1::JOB_STATE_FAILED,
          fmt::format("the coordinator stopped while the job was {}{}", StateName(state),
                      cancelled ? " and being cancelled" : ""));
    } else {
      Publish(job);
    }
  }
  queue_changed_ = fleet_changed_ = true;
  Schedule();
  return std::exchange(actions_, {});
}

Actions Logic::Step(const Event& event, Now now) {
  const auto gap = now.steady - now_.steady;
  if (gap > kLate) Excuse(gap);
  now_ = now;
  std::visit([this](const auto& e) { On(e); }, event);
  Schedule();
  return std::exchange(actions_, {});
}

// ---- clients ------------------------------------------------------------------------------------

void Logic::On(const SubmitAsked& event) {
  const v1::SubmitRequest& submit = event.submit;
  const std::string& key = submit.idempotency_key();
  if (key.empty() || key.size() > kMaxKeyLength) {
    return Answer({InvalidArgument("idempotency_key has {} characters; expected 1 to {}",
                                   key.size(), kMaxKeyLength),
                   "INVALID_IDEMPOTENCY_KEY"});
  }
  if (submit.spec().ByteSizeLong() > options_.max_spec_bytes) {
    return Answer({InvalidArgument("the spec has {} bytes, at most {} are allowed",
                                   submit.spec().ByteSizeLong(), options_.max_spec_bytes),
                   "INVALID_JOB"});
  }
  const Sha256Digest digest = Sha256Of(submit.spec().SerializeAsString());
  const std::string sha256 = Hex(digest);
  if (const auto known = keys_.find(key); known != keys_.end()) {
    const Job& job = jobs_.at(known->second);
    if (job.record.spec_sha256 == sha256) {
      actions_.push_back(Reply{{}, job.record.id(), true});
      return;
    }
    return Answer(
        {Error(absl::StatusCode::kAlreadyExists,
               "this idempotency key was used for job {} with another spec; use a new key",
               job.record.id()),
         "IDEMPOTENCY_KEY_REUSED"},
        job.record.id());
  }
  if (Status valid = job::Validate(submit.spec()); !valid.ok()) {
    return Answer({valid, "INVALID_JOB"});
  }
  const auto unfinished = std::count_if(jobs_.begin(), jobs_.end(), [](const auto& entry) {
    return !IsFinal(entry.second.record.status.state());
  });
  if (jobs_.size() >= options_.max_jobs ||
      static_cast<size_t>(unfinished) >= options_.max_unfinished_jobs) {
    return Answer({Error(absl::StatusCode::kResourceExhausted,
                         "{} jobs are known ({} allowed), {} of them unfinished ({} allowed); wait "
                         "for some to end, or cancel them",
                         jobs_.size(), options_.max_jobs, unfinished, options_.max_unfinished_jobs),
                   "TOO_MANY_JOBS"});
  }
  JobRecord record;
  record.number = jobs_.empty() ? 1 : jobs_.rbegin()->first + 1;
  record.idempotency_key = key;
  record.spec_sha256 = sha256;
  record.status.set_job_id(MakeJobId(record.number));
  record.status.set_name(submit.spec().name());
  record.status.set_state(v1::JOB_STATE_QUEUED);
  record.status.set_submitted_unix_ms(now_.unix_ms);
  *record.status.mutable_spec() = submit.spec();
  actions_.push_back(InsertJob{std::move(record)});
}

void Logic::On(const JobInserted& event) {
  if (!event.status.ok()) return Answer({event.status, "STORE_UNAVAILABLE"});
  const JobRecord& record = event.record;
  jobs_[record.number].record = record;
  numbers_[record.id()] = record.number;
  keys_[record.idempotency_key] = record.number;
  queue_changed_ = true;
  Publish(jobs_[record.number]);  // before the answer: whoever has the id may ask for the job
  Answer({}, record.id());
}

void Logic::On(const CancelAsked& event) {
  Job* job = Find(event.job.value());
  if (job == nullptr) return Answer(NoSuchJob(event.job.value()));
  const v1::JobState state = job->record.status.state();
  if (IsFinal(state)) {
    return Answer({FailedPrecondition("job {} is {} already", job->record.id(), StateName(state)),
                   "JOB_ENDED"},
                  job->record.id());
  }
  const std::string reason = "cancelled on request";
  job->record.cancel_requested = true;
  if (job->run && job->run->started()) {
    if (job->run->phase() != Phase::kStopping) {
      job->run->Stop(reason, now_, actions_);
      SetState(*job, state, "being cancelled: stops at a step boundary");
      Save(*job);
    }
  } else {
    End(*job, v1::JOB_STATE_CANCELLED, reason);
  }
  Answer({}, job->record.id());
}

// ---- checkpoints --------------------------------------------------------------------------------

Refusal Logic::CheckUpload(const v1::CheckpointBegin& begin, Job** job) {
  *job = Find(begin.job_id());
  if (*job == nullptr) return NoSuchJob(begin.job_id());
  const JobRecord& record = (*job)->record;
  const v1::Generation& current = record.status.generation();
  if (!record.resolved || begin.generation().term() != current.term() ||
      begin.generation().counter() != current.counter()) {
    return {FailedPrecondition("generation {}.{} of job {} is not its current one, {}.{}",
                               begin.generation().term(), begin.generation().counter(), record.id(),
                               current.term(), current.counter()),
            "STALE_GENERATION"};
  }
  const auto& workers = record.status.workers();
  if (std::none_of(workers.begin(), workers.end(),
                   [&](const v1::JobWorker& w) { return w.name() == begin.worker(); })) {
    return {
        FailedPrecondition("worker {} is not in the ring of job {}", begin.worker(), record.id()),
        "NOT_IN_RING"};
  }
  if (begin.step() == 0 || begin.step() > record.resolved->result().total_steps()) {
    return {InvalidArgument("checkpoint step {} of job {}; expected 1 to {}", begin.step(),
                            record.id(), record.resolved->result().total_steps()),
            "INVALID_CHECKPOINT"};
  }
  return {};
}

void Logic::On(const UploadAsked& event) {
  Job* job = nullptr;
  Answer(CheckUpload(event.begin, &job), event.begin.job_id());
}

void Logic::On(const UploadVerified& event) {
  Job* job = nullptr;
  Refusal refusal = CheckUpload(event.begin, &job);
  if (!refusal.status.ok()) return Answer(refusal, event.begin.job_id());
  const std::string expected = Hex(job::ResultDigest(job->record.resolved->result()));
  if (event.result_digest != expected) {
    return Answer({FailedPrecondition("the manifest belongs to another job: result_digest {}, "
                                      "expected {}",
                                      event.result_digest, expected),
                   "INVALID_CHECKPOINT"},
                  job->record.id());
  }
  for (const v1::CheckpointRef& known : job->checkpoints) {
    if (known.step() != event.ref.step()) continue;
    if (known.sha256() == event.ref.sha256()) return Answer({}, job->record.id());
    return Answer({Error(absl::StatusCode::kAlreadyExists,
                         "job {} has a checkpoint of step {} with manifest {}, not {}",
                         job->record.id(), known.step(), known.sha256(), event.ref.sha256()),
                   "CHECKPOINT_DIFFERS"},
                  job->record.id());
  }
  actions_.push_back(InsertCheckpoint{{job->record.id(), event.ref}, event.digest});
}

void Logic::On(const CheckpointInserted& event) {
  if (!event.status.ok()) return Answer({event.status, "STORE_UNAVAILABLE"});
  Job* job = Find(event.record.job_id);
  if (job == nullptr) return Answer(NoSuchJob(event.record.job_id));
  job->checkpoints.push_back(event.record.ref);
  std::sort(job->checkpoints.begin(), job->checkpoints.end(),
            [](const auto& a, const auto& b) { return a.step() < b.step(); });
  *job->record.status.mutable_checkpoint() = job->checkpoints.back();
  DropOldCheckpoints(*job);
  Answer({}, job->record.id());
  if (job->run) {
    Advance(*job, job->run->OnCheckpoint(event.record.ref, event.digest));
  } else {
    Publish(*job);
  }
}

void Logic::DropOldCheckpoints(Job& job) {
  const size_t keep = std::max<size_t>(1, job.record.resolved->checkpoint().keep());
  while (job.checkpoints.size() > keep) {
    actions_.push_back(RemoveCheckpoint{{job.record.id(), job.checkpoints.front()}});
    job.checkpoints.erase(job.checkpoints.begin());
  }
}

// ---- the queue ----------------------------------------------------------------------------------

void Logic::Schedule() {
  if (fleet_changed_) queue_changed_ = true;
  if (std::exchange(queue_changed_, false)) {
    const Job* head = nullptr;  // the first job that waits: all later ones wait for it
    size_t position = 0;
    for (auto& [number, job] : jobs_) {
      if (job.record.status.state() != v1::JOB_STATE_QUEUED) continue;
      ++position;
      if (head != nullptr) {
        WaitBehind(job, *head, position);
        continue;
      }
      const Placement placement = Place(job.record.status.spec(), fleet_);
      if (placement.workers.empty()) {
        head = &job;
        Wait(job, placement.reason);
      } else {
        --position;
        Start(job, placement.workers);
      }
    }
  }
  if (std::exchange(fleet_changed_, false)) actions_.push_back(PublishWorkers{fleet_.View()});
}

void Logic::Wait(Job& job, const std::string& reason) {
  if (SetState(job, v1::JOB_STATE_QUEUED, reason)) Publish(job);
}

void Logic::WaitBehind(Job& job, const Job& head, size_t position) {
  const std::string reason = fmt::format("number {} in the queue: behind {}, which {}", position,
                                         head.record.id(), head.record.status.reason());
  if (job.record.history.empty()) return Wait(job, reason);
  if (job.record.status.reason() == reason) return;
  job.record.status.set_reason(reason);
  Publish(job);
}

void Logic::Start(Job& job, const std::vector<std::string>& workers) {
  std::vector<Member> members;
  std::string names;
  for (const std::string& name : workers) {
    Worker& worker = *fleet_.Find(name);
    worker.job = JobId(job.record.id());
    Member& member = members.emplace_back();
    member.attach = worker.attach;
    member.session = worker.session;
    names += (names.empty() ? "" : ", ") + name;
  }
  job.run = std::make_unique<Run>(options_, job.record.status, GenerationId{term_, ++counter_},
                                  std::move(members));
  fleet_changed_ = true;
  job.run->Describe(job.record.status);
  job.record.status.set_started_unix_ms(now_.unix_ms);
  SetState(job, v1::JOB_STATE_STARTING, fmt::format("checks the dataset on {}", names));
  Save(job);
  job.run->Begin(now_, actions_);
}

void Logic::Advance(Job& job, const Status& status) {
  if (!status.ok()) return End(job, v1::JOB_STATE_FAILED, Message(status));
  Run& run = *job.run;
  run.Describe(job.record.status);
  if (run.phase() == Phase::kDone) {
    if (job.record.cancel_requested) {
      return End(job, v1::JOB_STATE_CANCELLED, "cancelled on request");
    }
    return End(job, v1::JOB_STATE_SUCCEEDED, "");
  }
  if (run.resolved() && !job.record.resolved) {
    job.record.resolved = run.resolved();
    SetState(job, v1::JOB_STATE_STARTING, "builds the job and compares the known shard");
    return Save(job);
  }
  if (run.phase() == Phase::kRunning && job.record.status.state() == v1::JOB_STATE_STARTING) {
    SetState(job, v1::JOB_STATE_RUNNING, "");
    return Save(job);
  }
  Publish(job);
}

void Logic::End(Job& job, v1::JobState state, const std::string& reason) {
  if (job.run) {
    job.run->Describe(job.record.status);
    ReleaseWorkers(job, state == v1::JOB_STATE_SUCCEEDED ? "" : reason);
    job.run.reset();
  }
  job.record.status.set_finished_unix_ms(now_.unix_ms);
  SetState(job, state, reason);
  Save(job);
  queue_changed_ = true;
}

void Logic::ReleaseWorkers(Job& job, const std::string& cancel_reason) {
  const JobId id(job.record.id());
  for (const Member& member : job.run->members()) {
    Worker* worker = fleet_.Find(member.session);
    if (worker == nullptr || worker->job != id) continue;  // lost
    v1::CoordinatorMessage message;
    if (!cancel_reason.empty() && job.run->phase() != Phase::kDone) {
      message.mutable_cancel()->set_job_id(id.value());
      message.mutable_cancel()->set_reason(cancel_reason);
      actions_.push_back(Send{worker->session, message});
    }
    message.mutable_release()->set_job_id(id.value());
    actions_.push_back(Send{worker->session, message});
    worker->job = JobId();
    worker->releasing = true;
    worker->released_at = now_.steady;
    fleet_changed_ = true;
  }
}

// ---- time ---------------------------------------------------------------------------------------

void Logic::Excuse(std::chrono::milliseconds late) {
  fleet_.Excuse(late);
  for (auto& [number, job] : jobs_) {
    if (job.run) job.run->Excuse(late);
  }
}

void Logic::On(const Tick&) {
  for (const Fleet::Overdue& overdue : fleet_.FindOverdue(now_)) {
    Refuse(overdue.session,
           {Error(absl::StatusCode::kDeadlineExceeded, "{}", overdue.reason), "LEASE_EXPIRED"});
    Lose(overdue.session, "was lost", overdue.reason);
  }
  for (auto& [number, job] : jobs_) {
    if (!job.run) continue;
    const Status late = job.run->CheckDeadline(now_);
    if (late.ok()) continue;
    if (job.run->phase() == Phase::kStopping) {
      End(job, v1::JOB_STATE_CANCELLED, fmt::format("cancelled on request, but {}", Message(late)));
    } else {
      End(job, v1::JOB_STATE_FAILED, Message(late));
    }
  }
}

// ---- what everyone sees -------------------------------------------------------------------------

bool Logic::SetState(Job& job, v1::JobState state, const std::string& reason) {
  v1::JobStatus& status = job.record.status;
  std::string text = StateName(state);
  if (!reason.empty()) text += ": " + reason;
  const bool same = status.state() == state && status.reason() == reason;
  if (same && !job.record.history.empty()) return false;
  status.set_state(state);
  status.set_reason(reason);
  job.record.history.push_back(text);
  if (job.record.history.size() > options_.max_history) {
    job.record.history.erase(job.record.history.begin());
  }
  actions_.push_back(Note{"job=" + job.record.id(), text});
  return true;
}

void Logic::Save(Job& job) {
  actions_.push_back(SaveJob{job.record});
  Publish(job);
}

void Logic::Publish(Job& job) {
  actions_.push_back(PublishJob{{job.record.status, job.record.history, job.checkpoints}});
}

void Logic::Answer(Refusal refusal, const std::string& job_id) {
  actions_.push_back(Reply{std::move(refusal), job_id, false});
}

Logic::Job* Logic::Find(const std::string& job_id) {
  const auto number = numbers_.find(job_id);
  return number == numbers_.end() ? nullptr : &jobs_.at(number->second);
}

}  // namespace ringmaster::coordinator
