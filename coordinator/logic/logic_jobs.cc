// The part of Logic that brings a job from its workers' choice to its end: its workers, what it
// goes on from, and the folds of one that is divided.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "common/job/metrics.h"
#include "common/planted_bug.h"
#include "coordinator/logic/logic.h"
#include "coordinator/logic/scheduler.h"

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
  job.MakeRun(generations_, phase_counts_, Job::From::kItsBegin);
  Fault no_init;
  if (job.record.status.spec().has_init() && !job.record.resolved) {
    v1::InitSource init;
    no_init = FaultOf(Cause::kInit, ChooseInit(job.record.status.spec().init(), &init));
    job.run->BeginWith(std::move(init));
  }
  fleet_changed_ = true;
  Actions sent;  // shown only after the placement
  job.run->Begin(gang, now_, sent);
  job.run->Describe(now_, job.record.status);
  job.record.status.set_started_unix_ms(now_.unix_ms);
  job.Tell({event_type::kPlaced, Severity::kInfo, DescribePlaces(job.record.status)});
  job.SetState(v1::JOB_STATE_STARTING, fmt::format("{} on {}",
                                                   job.record.status.spec().has_script()
                                                       ? "runs the script up to its attach"
                                                       : "checks the dataset",
                                                   names));
  job.Save();
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
  job.MakeRun(generations_, phase_counts_, Job::From::kRestart);
  job.run->Adopt(record, now_);
  if (!job.checkpoints.empty()) {
    job.run->OnCheckpoint(job.checkpoints.back().ref, "", actions_);
  }
  Advance(job, {});
}

void Logic::Advance(Job& job, Fault fault) {
  Run& run = *job.run;
  run.CatchUp();
  if (fault.ok()) fault = run.Settle(now_, actions_);
  if (const auto step = run.TakeMapsChanged()) {
    // A coordinator that starts again must find no state by another map.
    job.record.resolved = run.resolved();
    DropCheckpointsAfter(job, *step, "of a class map that was given up");
  }
  if (run.TakeUnstored()) {
    run.DescribeNext(now_, job.record);
    actions_.push_back(SaveJob{job.record, true});
  }
  if (const auto step = run.TakeDistrusted()) {
    DropCheckpointsAfter(job, *step, "not every member had reported its digest");
  }
  if (fault.ok() && run.TakeSearch()) fault = Search(job);
  const std::vector<Happening> told = run.TakeHappenings();
  for (const Happening& each : told) job.Tell(each);
  for (const Departure& departure : run.TakeDepartures()) LetGo(job, departure);
  if (!fault.ok()) return Fail(job, fault);
  if (!run.requeue().empty()) return Requeue(job, run.requeue());
  if (told.empty() && !job.HasNews() && !job.IsDue()) return job.Postpone();
  const Job::News news = job.LearnOfRun();
  if (news.slowed) figures_changed_ = true;
  if (run.phase() == Phase::kDone) {
    if (job.record.cancel_requested) {
      return End(job, v1::JOB_STATE_CANCELLED, run.DescribeEnd());
    }
    return End(job, v1::JOB_STATE_SUCCEEDED, run.DescribeStop());
  }
  if (news.regrouped) MarkJoining(job);
  if (job.ShowRun(news)) queue_changed_ = true;
}

void Logic::On(const JobSaved& event) {
  Job* const job = Find(event.record.id());
  if (job == nullptr || !job->run || !event.record.resolved) return;
  job->run->OnStored(event.record);
  Advance(*job, {});
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

void Logic::Fail(Job& job, const Fault& fault) {
  job.TellFailure(fault);
  End(job, v1::JOB_STATE_FAILED, fault.reason);
}

void Logic::End(Job& job, v1::JobState state, const std::string& reason) {
  if (job.run) {
    job.TellLast();
    ReleaseWorkers(job, state == v1::JOB_STATE_SUCCEEDED ? "" : reason);
    EndUploadsOf(job);
    job.KeepMetrics(Job::Which::kAll);
    if (!job.run->started()) job.ForgetPlannedRing();
    job.run.reset();
  }
  job.record.status.set_finished_unix_ms(now_.unix_ms);
  job.SetState(state, reason);
  unfinished_.erase(job.record.number);
  job.Save();
  queue_changed_ = true;
}

// It could not start with the workers that were chosen. By value: the run that has the text ends.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Logic::Requeue(Job& job, std::string reason) {
  if (job.run) ReleaseWorkers(job, "");
  EndUploadsOf(job);
  job.DropRun();
  job.SetState(v1::JOB_STATE_QUEUED, reason);
  job.Save();
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

void Logic::Answer(Refusal refusal, const std::string& job_id) {
  actions_.push_back(Reply{std::move(refusal), job_id, false});
}

// ---- cross-validation ---------------------------------------------------------------------------
//
// A job with validation.folds runs nothing itself. Each fold is a job of its own, and what is shown
// of the first is made of what is known of those.

namespace {

v1::JobSpec SpecOfFold(v1::JobSpec spec, uint32_t fold) {
  constexpr size_t kMostName = 88;
  const uint32_t folds = spec.validation().folds();
  spec.set_name(fmt::format("{}-fold-{}", spec.name().substr(0, kMostName), fold));
  spec.mutable_validation()->set_fold(fmt::format("{}/{}", fold, folds));
  return spec;
}

// Of the folds that succeeded, in the order of their metrics.
std::vector<v1::MetricSpread> SpreadOf(const google::protobuf::RepeatedPtrField<v1::Fold>& folds) {
  std::vector<v1::MetricSpread> spread;
  std::map<std::pair<int, std::string>, std::vector<double>> values;
  for (const v1::Fold& fold : folds) {
    if (fold.state() != v1::JOB_STATE_SUCCEEDED) continue;
    for (const v1::Metric& metric : fold.metrics()) {
      std::vector<double>& of_metric = values[{metric.split(), metric.name()}];
      if (of_metric.empty()) {
        v1::MetricSpread& added = spread.emplace_back();
        added.set_split(metric.split());
        added.set_name(metric.name());
      }
      of_metric.push_back(metric.value());
    }
  }
  for (v1::MetricSpread& each : spread) {
    const std::vector<double>& of_metric = values[{each.split(), each.name()}];
    const auto count = static_cast<double>(of_metric.size());
    double sum = 0, squares = 0;
    for (const double value : of_metric) sum += value;
    const double mean = sum / count;
    for (const double value : of_metric) squares += (value - mean) * (value - mean);
    each.set_mean(mean);
    each.set_deviation(count > 1 ? std::sqrt(squares / (count - 1)) : 0);
    each.set_count(static_cast<uint32_t>(of_metric.size()));
  }
  return spread;
}

struct FoldsState {
  v1::JobState state = v1::JOB_STATE_QUEUED;
  std::string reason;
};

// `3 (j0004) FAILED`
std::string Named(int index, const v1::Fold& fold) {
  return fmt::format("fold {} ({})", index + 1, fold.job_id());
}

FoldsState StateOf(const v1::JobStatus& status, uint32_t folds, bool cancelled) {
  uint32_t ended = 0, succeeded = 0;
  std::string lost, runs;
  bool began = false;
  for (int i = 0; i < status.folds_size(); ++i) {
    const v1::Fold& fold = status.folds(i);
    began = began || fold.state() != v1::JOB_STATE_QUEUED;
    if (!IsFinal(fold.state())) {
      if (runs.empty() && fold.state() != v1::JOB_STATE_QUEUED) runs = Named(i, fold);
      continue;
    }
    ++ended;
    if (fold.state() == v1::JOB_STATE_SUCCEEDED) {
      ++succeeded;
    } else if (lost.empty()) {
      lost = fmt::format("{} is {}", Named(i, fold), StateName(fold.state()));
    }
  }
  if (ended < (cancelled ? static_cast<uint32_t>(status.folds_size()) : folds)) {
    const std::string done = fmt::format("{} of {} folds are done", ended, folds);
    return {began ? v1::JOB_STATE_RUNNING : v1::JOB_STATE_QUEUED,
            runs.empty() ? done : fmt::format("{}; {} runs", done, runs)};
  }
  if (succeeded == folds) return {v1::JOB_STATE_SUCCEEDED, ""};
  if (cancelled) return {v1::JOB_STATE_CANCELLED, "cancelled on request"};
  return {v1::JOB_STATE_FAILED,
          fmt::format("{} of {} folds succeeded: {}", succeeded, folds, lost)};
}

}  // namespace

// One after the other, so that a store that fails in between is left with the first of them.
void Logic::SubmitNextFold(Job& parent) {
  const v1::JobSpec& spec = parent.record.status.spec();
  const auto fold = static_cast<uint32_t>(parent.folds.size() + 1);
  const bool over = IsFinal(parent.record.status.state()) || parent.record.cancel_requested;
  if (fold > spec.validation().folds() || over) return;
  JobRecord record;
  *record.status.mutable_spec() = SpecOfFold(spec, fold);
  record.status.set_fold_of(parent.record.id());
  record.idempotency_key = fmt::format("{}{} of {}", kFoldKey, fold, parent.record.id());
  if (inserting_.contains(record.idempotency_key)) return;
  record.status.set_submitted_by(parent.record.status.submitted_by());
  Insert(std::move(record), fmt::format("submitted as fold {} of {}", fold, parent.record.id()));
}

void Logic::ShowFolds(const std::string& parent_id) {
  Job* const parent = Find(parent_id);
  if (folds_held_ || parent == nullptr || IsFinal(parent->record.status.state())) return;
  v1::JobStatus& status = parent->record.status;
  status.clear_folds();
  uint64_t step = 0, total = 0;
  for (const std::string& id : parent->folds) {
    const Job& fold = *Find(id);
    const v1::JobStatus& of_fold = fold.record.status;
    *status.add_folds() = fold.AsFold();
    step += of_fold.step();
    total = std::max(total, of_fold.total_steps());
    if (status.started_unix_ms() == 0) status.set_started_unix_ms(of_fold.started_unix_ms());
  }
  const uint32_t folds = status.spec().validation().folds();
  status.set_step(step);
  status.set_total_steps(total * folds);
  const std::vector<v1::MetricSpread> spread = SpreadOf(status.folds());
  status.mutable_spread()->Assign(spread.begin(), spread.end());
  const FoldsState now = StateOf(status, folds, parent->record.cancel_requested);
  if (IsFinal(now.state)) {
    status.set_finished_unix_ms(now_.unix_ms);
    unfinished_.erase(parent->record.number);
  }
  if (parent->SetState(now.state, now.reason)) return parent->Save();
  parent->Publish();
}

}  // namespace ringmaster::coordinator
