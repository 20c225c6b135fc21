// The part of Logic that brings a job from its workers' choice to its end, and records what
// happened to it.
#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "common/job/metrics.h"
#include "common/planted_bug.h"
#include "coordinator/logic/logic.h"

namespace ringmaster::coordinator {
namespace {

// `a (shards 0 to 1), b (shard 2)`
std::string DescribePlaces(const v1::JobStatus& status) {
  std::string text;
  for (const v1::JobWorker& worker : status.workers()) {
    text += (text.empty() ? "on " : ", ") + worker.name();
    if (worker.shards().empty()) continue;
    const uint32_t first = worker.shards(0), last = worker.shards(worker.shards_size() - 1);
    text += fmt::format(" ({})", first == last ? fmt::format("shard {}", first)
                                               : fmt::format("shards {} to {}", first, last));
  }
  return text;
}

constexpr char kBuilds[] = "builds the job and compares the known shard";

std::string Describe(const v1::InitReport& report) {
  return fmt::format("{} tensors from {}, {} drawn anew, {} of the source unused", report.matched(),
                     report.source(), report.fresh(), report.unused());
}

// The event of a state.
const char* TypeOf(v1::JobState state) {
  if (state == v1::JOB_STATE_CANCELLED) return event_type::kCancelled;
  return IsFinal(state) ? event_type::kFinished : event_type::kStateChanged;
}

}  // namespace

void Logic::Start(Job& job, const std::vector<std::string>& workers) {
  std::vector<const Worker*> gang;
  std::string names;
  for (const std::string& name : workers) {
    Worker& worker = *fleet_.Find(name);
    worker.job = JobId(job.record.id());
    worker.joining = false;
    gang.push_back(&worker);
    names += (names.empty() ? "" : ", ") + name;
  }
  job.run = std::make_unique<Run>(options_, generations_, job.record);
  Fault no_init;
  if (job.record.status.spec().has_init() && !job.record.resolved) {
    v1::InitSource init;
    no_init = FaultOf(Cause::kInit, ChooseInit(job.record.status.spec().init(), &init));
    job.run->BeginWith(std::move(init));
  }
  job.snapshots = {};
  fleet_changed_ = true;
  job.progress_events = {};
  job.first_step = false;
  Actions sent;  // shown only after the placement
  job.run->Begin(gang, now_, sent);
  job.run->Describe(now_, job.record.status);
  job.record.status.set_started_unix_ms(now_.unix_ms);
  Record(job, {event_type::kPlaced, Severity::kInfo, DescribePlaces(job.record.status)});
  SetState(job, v1::JOB_STATE_STARTING, fmt::format("checks the dataset on {}", names));
  Save(job);
  std::move(sent.begin(), sent.end(), std::back_inserter(actions_));
  if (!no_init.ok()) Fail(job, no_init);
}

Status Logic::ChooseInit(const v1::Init& init, v1::InitSource* source) {
  source->set_average(init.average());
  if (!init.has_job()) {
    source->set_file(init.file());
    return absl::OkStatus();
  }
  const Job* other = Find(init.job());
  if (other == nullptr) return InvalidArgument("init.job: there is no job {}", init.job());
  const CheckpointList& checkpoints = other->checkpoints;
  const CheckpointRecord* found = nullptr;
  if (init.has_step()) {
    found = FindStep(checkpoints, init.step());
  } else if (!checkpoints.empty()) {
    found = BestOf(checkpoints, job::BestWatch(other->record.resolved->result()));
    if (found == nullptr) found = &checkpoints.back();
  }
  if (found == nullptr) {
    return InvalidArgument(
        "init.job: job {} has no checkpoint{}; `ringctl checkpoint ls {}`", init.job(),
        init.has_step() ? fmt::format(" of step {}", init.step()) : "", init.job());
  }
  *source->mutable_checkpoint() = SourceOf(*found);
  return absl::OkStatus();
}

void Logic::Readopt(Job& job) {
  JobRecord& record = job.record;
  const std::string stopped =
      "the coordinator stopped while the job was " + StateName(record.status.state());
  if (record.cancel_requested) {
    return End(job, v1::JOB_STATE_CANCELLED, stopped + " and being cancelled");
  }
  if (!record.resolved || record.status.generation().term() == 0) return Requeue(job, stopped);
  job.run = std::make_unique<Run>(options_, generations_, record);
  job.run->Adopt(record, now_);
  job.first_step = true;
  if (!job.checkpoints.empty()) {
    job.run->OnCheckpoint(job.checkpoints.back().ref, "", actions_);
  }
  Advance(job, {});
}

bool Logic::HasNews(const Job& job) const {
  const Run& run = *job.run;
  const v1::JobStatus& status = job.record.status;
  if (run.phase() == Phase::kDone || (run.resolved() && !job.record.resolved)) return true;
  if (!run.started()) return run.phase() == Phase::kPreparing && job.state_reason != kBuilds;
  if (FromProto(status.generation()) != run.generation()) return true;
  if (!job.first_step && run.phases().over()) return true;
  return !job.record.cancel_requested &&
         (run.state() != status.state() || run.reason() != job.state_reason);
}

bool Logic::IsDue(const Job& job) const {
  return !job.shown_at || now_.steady - *job.shown_at >= options_.show_figures;
}

void Logic::ShowSoon(Job& job) {
  if (IsDue(job)) return Publish(job);
  job.unshown = true;
}

void Logic::Advance(Job& job, Fault fault) {
  Run& run = *job.run;
  const auto before_it = static_cast<long>(actions_.size());
  run.CatchUp();
  if (fault.ok()) fault = run.Settle(now_, actions_);
  if (run.TakeMapsChanged()) {
    // A coordinator that starts again has to know by which map steps are computed.
    job.record.resolved = run.resolved();
    actions_.insert(actions_.begin() + before_it, SaveJob{job.record});
  }
  if (const auto step = run.TakeDistrusted()) DropDistrusted(job, *step);
  if (fault.ok() && run.TakeSearch()) fault = Search(job);
  const std::vector<Happening> told = run.TakeHappenings();
  for (const Happening& each : told) Record(job, each);
  for (const Departure& departure : run.TakeDepartures()) LetGo(job, departure);
  if (!fault.ok()) return Fail(job, fault);
  if (!run.requeue().empty()) return Requeue(job, run.requeue());
  if (told.empty() && !HasNews(job) && !IsDue(job)) {
    job.unshown = true;
    return;
  }
  v1::JobStatus& status = job.record.status;
  const GenerationId before = FromProto(status.generation());
  run.Describe(now_, status);
  const bool first_step = Observe(job);
  if (run.phase() == Phase::kDone) {
    if (job.record.cancel_requested) {
      return End(job, v1::JOB_STATE_CANCELLED, run.DescribeEnd());
    }
    return End(job, v1::JOB_STATE_SUCCEEDED, run.DescribeStop());
  }
  const bool regrouped = run.started() && before != run.generation();
  if (regrouped) {
    MarkJoining(job);
    job.snapshots.ForgetAfter(run.start_step());
    std::set<std::string> members;
    for (const Member& member : run.members()) members.insert(member.name());
    job.snapshots.KeepHolders(members);
  }
  const v1::JobState state = status.state();
  const std::string reason = job.state_reason;
  const bool resolved_now = run.resolved() && !job.record.resolved;
  if (run.resolved()) job.record.resolved = run.resolved();
  if (resolved_now && run.resolved()->has_init_report()) {
    *status.mutable_init() = run.resolved()->init_report();
    Record(job, {event_type::kInitialized, Severity::kInfo, Describe(status.init())});
  }
  ShowState(job);
  const bool changed = status.state() != state;
  if (changed) queue_changed_ = true;
  const bool builds = !run.started() && job.state_reason != reason;
  ShowPhase(job);
  if (changed || builds || resolved_now || regrouped || first_step) return Save(job);
  Publish(job);
}

void Logic::ShowState(Job& job) {
  const Run& run = *job.run;
  if (job.record.cancel_requested) return;
  v1::JobStatus& status = job.record.status;
  if (!run.started()) {
    if (run.phase() == Phase::kPreparing && job.state_reason != kBuilds) {
      SetState(job, v1::JOB_STATE_STARTING, kBuilds);
    }
    return;
  }
  if (run.state() == v1::JOB_STATE_WAITING) job.advice = run.Advise(now_);
  if (run.state() != status.state()) {
    SetState(job, run.state(), run.reason());
  } else if (job.state_reason != run.reason()) {
    // A wait has many reasons, one after the other; only its begin is an event.
    job.state_reason = run.reason();
    status.set_reason(run.reason());
    if (run.reason().empty()) return;
    actions_.push_back(
        Note{"job=" + job.record.id(), StateName(run.state()) + ": " + run.reason()});
  }
}

// The job's own checkpoints, newest first, then those of the one that it resumes, then the one that
// it continues: other steps of that job are no states of this one. Of its own also those that were
// superseded by others that may not be whole, and are still there. None of them goes while they are
// looked at, unless two newer ones are whole: then one of these is found.
Fault Logic::Search(Job& job) {
  CheckpointList own = job.checkpoints;
  CheckpointList superseded = job.retirement.Waiting();
  if (RING_PLANTED(kMergesNoCandidates)) superseded.clear();
  for (const CheckpointRecord& record : superseded) Keep(record, own);
  std::vector<CheckpointRecord> candidates(own.rbegin(), own.rend());
  if (const Job* other = Find(job.record.status.resumes_job()); other != nullptr) {
    candidates.insert(candidates.end(), other->checkpoints.rbegin(), other->checkpoints.rend());
  }
  if (const CheckpointRecord* continued = FindContinued(job.record); continued != nullptr) {
    candidates.push_back(*continued);
  }
  if (!candidates.empty()) {
    actions_.push_back(FindCheckpoint{job.record.id(), std::move(candidates)});
    return {};
  }
  if (Fault fault = job.run->OnCheckpointFound({job.record.id(), {}, "", {}}, now_); !fault.ok()) {
    return fault;
  }
  return job.run->Settle(now_, actions_);
}

// Who has a place in the ring is no joiner any more.
void Logic::MarkJoining(Job& job) {
  for (const Member& member : job.run->members()) {
    Worker* worker = fleet_.Find(member.session);
    if (worker == nullptr) continue;
    worker->joining = !job.run->InRing(member.name());
    fleet_changed_ = true;
  }
}

// Events of what the run has learned; true when the first step was just applied everywhere.
bool Logic::Observe(Job& job) {
  StartPhases& phases = job.run->phases();
  for (const v1::StartPhase& phase : phases.TakeEnded(now_)) {
    Record(job, {event_type::kPhaseEntered, Severity::kInfo,
                 fmt::format("{} took {}, longest on {}", phase.name(),
                             FormatSeconds(phase.seconds()), phase.worker())});
  }
  for (const Happening& told : job.progress_events.Observe(job.record.status, now_)) {
    Record(job, told);
  }
  if (job.first_step || !phases.over()) return false;
  job.first_step = true;
  const std::chrono::duration<double> since = now_.steady - job.run->begun();
  Record(job, {event_type::kFirstStep, Severity::kInfo,
               fmt::format("applied on every worker, {} after they were chosen",
                           FormatSeconds(since.count()))});
  return true;
}

// A phase of starting stands in the reason while it lasts, and in no event until it is over.
void Logic::ShowPhase(Job& job) {
  if (job.record.cancel_requested || job.record.status.state() == v1::JOB_STATE_WAITING) return;
  std::string phase = job.run->phases().Reason();
  for (const Member& member : job.run->members()) {
    if (phase.empty() || !member.fetch) continue;
    phase += fmt::format("; {} is {}", member.name(), DescribeFetch(*member.fetch));
    break;  // one says enough
  }
  job.record.status.set_reason(phase.empty() ? job.state_reason : phase);
}

void Logic::Fail(Job& job, const Fault& fault) {
  v1::JobStatus& status = job.record.status;
  Scene scene;
  scene.job_id = job.record.id();
  scene.step = fault.step;
  scene.kept_step = status.checkpoint().step();
  if (job.run) {
    scene.step = std::max(fault.step, job.run->committed_step());
    if (const Member* member = job.run->Find(fault.worker); member != nullptr) {
      scene.host = member->attach.host();
      scene.phase = job.run->PhaseOf(*member);
    }
  }
  *status.mutable_failure() = MakeFailure(fault, scene);
  if (!fault.worker.empty()) {
    Record(job, {event_type::kWorkerFailed, Severity::kError, fault.reason, fault.worker});
  }
  End(job, v1::JOB_STATE_FAILED, fault.reason);
}

void Logic::End(Job& job, v1::JobState state, const std::string& reason) {
  if (job.run) {
    job.run->Describe(now_, job.record.status);
    for (const Happening& told : job.progress_events.Flush()) Record(job, told);
    ReleaseWorkers(job, state == v1::JOB_STATE_SUCCEEDED ? "" : reason);
    EndUploadsOf(job);
    KeepMetrics(job, job.run->history().Take(now_));
    job.run.reset();
  }
  job.record.status.set_finished_unix_ms(now_.unix_ms);
  SetState(job, state, reason);
  unfinished_.erase(job.record.number);
  Save(job);
  queue_changed_ = true;
}

// It could not start with the workers that were chosen. By value: the run that has the text ends.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Logic::Requeue(Job& job, std::string reason) {
  v1::JobStatus& status = job.record.status;
  if (job.run) ReleaseWorkers(job, "");
  EndUploadsOf(job);
  job.run.reset();
  status.clear_workers();
  status.clear_start_phases();
  status.clear_started_unix_ms();
  // Nothing was computed with it: another ring may resolve the job anew.
  if (status.resumes_job().empty() && status.like_job().empty() && !status.has_continues()) {
    job.record.resolved.reset();
    status.clear_init();
    status.clear_total_steps();
    status.clear_steps_per_epoch();
  }
  SetState(job, v1::JOB_STATE_QUEUED, reason);
  Save(job);
  queue_changed_ = true;
}

void Logic::ReleaseWorkers(Job& job, const std::string& cancel_reason) {
  const JobId id(job.record.id());
  for (const Member& member : job.run->members()) {
    Worker* worker = fleet_.Find(member.session);
    if (worker == nullptr || worker->job != id) continue;  // lost
    if (!cancel_reason.empty() && job.run->phase() != Phase::kDone) {
      v1::CoordinatorMessage message;
      message.mutable_cancel()->set_job_id(id.value());
      message.mutable_cancel()->set_reason(cancel_reason);
      actions_.push_back(Send{worker->session, message});
    }
    ReleaseWorker(id.value(), *worker, member.data_differs ? ItsData::kDiffers : ItsData::kIsRight);
  }
}

void Logic::ReleaseWorker(const std::string& job_id, Worker& worker, ItsData data) {
  v1::CoordinatorMessage message;
  message.mutable_release()->set_job_id(job_id);
  message.mutable_release()->set_data_differs(data == ItsData::kDiffers);
  actions_.push_back(Send{worker.session, message});
  worker.job = JobId();
  worker.joining = false;
  worker.releasing = true;
  worker.released_at = now_.steady;
  fleet_changed_ = true;
}

void Logic::LetGo(Job& job, const Departure& departure) {
  Worker* worker = fleet_.Find(departure.session);
  if (worker == nullptr) return;
  if (!departure.evicted) {
    return ReleaseWorker(job.record.id(), *worker,
                         departure.data_differs ? ItsData::kDiffers : ItsData::kIsRight);
  }
  actions_.push_back(Note{"worker=" + worker->name(), "left out: " + departure.reason});
  Refuse(departure.session,
         {Error(absl::StatusCode::kAborted, "left out of job {}: {}; attach again", job.record.id(),
                departure.reason),
          "EVICTED"});
  EndUploadsOf(departure.session, worker->name() + " was left out");
  fleet_.Close(departure.session);
  fleet_changed_ = true;
}

// ---- what everyone sees -------------------------------------------------------------------------

bool Logic::SetState(Job& job, v1::JobState state, const std::string& reason) {
  v1::JobStatus& status = job.record.status;
  job.state_reason = reason;
  if (status.state() == state && status.reason() == reason) return false;
  status.set_state(state);
  status.set_reason(reason);
  std::string text = StateName(state);
  if (!reason.empty()) text += ": " + reason;
  Record(job, {TypeOf(state), state == v1::JOB_STATE_FAILED ? Severity::kError : Severity::kInfo,
               std::move(text)});
  return true;
}

void Logic::Record(Job& job, const Happening& happening) {
  job.record.events.Add(happening, now_.unix_ms, options_.max_history);
  if (happening.type == event_type::kWorkerFailed) return;  // the end of the job says it too
  const bool state = happening.type == event_type::kStateChanged ||
                     happening.type == event_type::kFinished ||
                     happening.type == event_type::kCancelled;
  actions_.push_back(Note{"job=" + job.record.id(),
                          state ? happening.message : happening.type + ": " + happening.message});
}

void Logic::Save(Job& job) {
  if (job.run) KeepMetrics(job, job.run->history().Take(now_));
  actions_.push_back(SaveJob{job.record});
  Publish(job);
}

void Logic::KeepMetrics(const Job& job, MetricBatch batch) {
  if (!batch.empty()) actions_.push_back(SaveMetrics{job.record.id(), std::move(batch)});
}

void Logic::Publish(Job& job) {
  job.shown_at = now_.steady;
  job.unshown = false;
  JobView view{job.record.status, job.record.events, {}, {}};
  for (const CheckpointRecord& checkpoint : job.checkpoints) {
    view.checkpoints.push_back(checkpoint.ref);
  }
  const v1::JobState state = job.record.status.state();
  if (state == v1::JOB_STATE_QUEUED || state == v1::JOB_STATE_WAITING) view.advice = job.advice;
  actions_.push_back(PublishJob{std::move(view)});
  if (const std::string& parent = job.record.status.fold_of(); !parent.empty()) ShowFolds(parent);
}

void Logic::Answer(Refusal refusal, const std::string& job_id) {
  actions_.push_back(Reply{std::move(refusal), job_id, false});
}

}  // namespace ringmaster::coordinator
