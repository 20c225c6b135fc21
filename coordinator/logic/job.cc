#include "coordinator/logic/job.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/job/metrics.h"
#include "common/job/resolve.h"
#include "common/job/script_files.h"

namespace ringmaster::coordinator {
namespace {

constexpr char kBuilds[] = "builds the job and compares the known shard";

std::string Describe(const v1::InitReport& report) {
  return fmt::format("{} tensors from {}, {} drawn anew, {} of the source unused", report.matched(),
                     report.source(), report.fresh(), report.unused());
}

int SlowedBy(const v1::JobStatus& status) {
  int percent = 0;
  for (const v1::JobWorker& worker : status.workers()) {
    percent += static_cast<int>(std::min(worker.faster_without(), 1e5));
  }
  return percent;
}

// The event of a state.
const char* TypeOf(v1::JobState state) {
  if (state == v1::JOB_STATE_CANCELLED) return event_type::kCancelled;
  return IsFinal(state) ? event_type::kFinished : event_type::kStateChanged;
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

// ---- its run ------------------------------------------------------------------------------------

void Job::MakeRun(GenerationSource& generations, PhaseCounts& phase_counts, From from) {
  run = std::make_unique<Run>(desk_.options, generations, phase_counts, record);
  snapshots = {};
  progress_events_ = from == From::kRestart ? ProgressEvents(record.status) : ProgressEvents();
  first_step_ = from == From::kRestart;
  generation_ = FromProto(record.status.generation());
}

Job::News Job::LearnOfRun() {
  run->Describe(desk_.now, record.status);
  News news;
  const int slowed = SlowedBy(record.status);
  news.slowed = std::exchange(slowed_, slowed) != slowed;
  news.first_step = ObserveSteps();
  if (run->started()) {
    news.regrouped = std::exchange(generation_, run->generation()) != run->generation();
  }
  return news;
}

bool Job::ShowRun(const News& news) {
  v1::JobStatus& status = record.status;
  if (news.regrouped) {
    snapshots.ForgetAfter(run->start_step());
    std::set<std::string> members;
    for (const Member& member : run->members()) members.insert(member.name());
    snapshots.KeepHolders(members);
  }
  const v1::JobState state = status.state();
  const std::string reason = state_reason_;
  const bool resolved_now = run->resolved() && !record.resolved;
  if (run->resolved()) record.resolved = run->resolved();
  if (resolved_now && run->resolved()->has_init_report()) {
    *status.mutable_init() = run->resolved()->init_report();
    Tell({event_type::kInitialized, Severity::kInfo, Describe(status.init())});
  }
  ShowState();
  const bool changed = status.state() != state;
  const bool builds = !run->started() && state_reason_ != reason;
  ShowPhase();
  if (changed || builds || resolved_now || news.regrouped || news.first_step) {
    Save();
  } else {
    Publish();
  }
  return changed;
}

bool Job::HasNews() const {
  const Run& its = *run;
  const v1::JobStatus& status = record.status;
  if (its.phase() == Phase::kDone || (its.resolved() && !record.resolved)) return true;
  if (!its.started()) return its.phase() == Phase::kPreparing && state_reason_ != kBuilds;
  if (generation_ != its.generation()) return true;
  if (!first_step_ && its.phases().over()) return true;
  return !record.cancel_requested &&
         (its.state() != status.state() || its.reason() != state_reason_);
}

// A view of a thousand members costs 10 ms, in which nobody is answered.
bool Job::IsDue() const {
  const std::chrono::milliseconds pause(run ? run->members().size() : 0);
  return !shown_at_ || desk_.now.steady - *shown_at_ >= std::max(desk_.options.show_figures, pause);
}

void Job::ShowSoon() {
  if (IsDue()) return Publish();
  unshown_ = true;
}

void Job::ShowState() {
  const Run& its = *run;
  if (record.cancel_requested) return;
  v1::JobStatus& status = record.status;
  if (!its.started()) {
    if (its.phase() == Phase::kPreparing && state_reason_ != kBuilds) {
      SetState(v1::JOB_STATE_STARTING, kBuilds);
    }
    return;
  }
  if (its.state() == v1::JOB_STATE_WAITING) advice_ = desk_.advise(its);
  if (its.state() != status.state()) {
    SetState(its.state(), its.reason());
  } else if (state_reason_ != its.reason()) {
    // A wait has many reasons, one after the other; only its begin is an event.
    state_reason_ = its.reason();
    status.set_reason(its.reason());
    if (its.reason().empty()) return;
    desk_.actions.push_back(
        Note{"job=" + record.id(), StateName(its.state()) + ": " + its.reason()});
  }
}

// Events of what the run has learned; true when the first step was just applied everywhere.
bool Job::ObserveSteps() {
  StartPhases& phases = run->phases();
  for (const v1::StartPhase& phase : phases.TakeEnded(desk_.now)) {
    Tell({event_type::kPhaseEntered, Severity::kInfo,
          fmt::format("{} took {}, longest on {}", phase.name(), FormatSeconds(phase.seconds()),
                      phase.worker())});
  }
  for (const Happening& told : progress_events_.Observe(record.status, desk_.now)) {
    Tell(told);
  }
  if (first_step_ || !phases.over()) return false;
  first_step_ = true;
  const std::chrono::duration<double> since = desk_.now.steady - run->begun();
  Tell({event_type::kFirstStep, Severity::kInfo,
        fmt::format("applied on every worker, {} after they were chosen",
                    FormatSeconds(since.count()))});
  return true;
}

// A phase of starting stands in the reason while it lasts, and in no event until it is over.
void Job::ShowPhase() {
  if (record.cancel_requested || record.status.state() == v1::JOB_STATE_WAITING) return;
  std::string phase = run->phases().Reason();
  for (const Member& member : run->members()) {
    if (phase.empty() || !member.fetch) continue;
    phase += fmt::format("; {} is {}", member.name(), DescribeFetch(*member.fetch));
    break;  // one says enough
  }
  record.status.set_reason(phase.empty() ? state_reason_ : phase);
}

// While a phase of starting lasts, those who watch see it.
void Job::ShowStart() {
  const bool shown = shown_at_ && desk_.now.steady - *shown_at_ < desk_.options.show_every;
  if (shown || !run->phases().under_way()) return;
  run->Describe(desk_.now, record.status);
  ShowPhase();
  Publish();
}

void Job::TellFailure(const Fault& fault) {
  v1::JobStatus& status = record.status;
  Scene scene;
  scene.job_id = record.id();
  scene.step = fault.step;
  scene.kept_step = status.checkpoint().step();
  scene.of_script = status.spec().has_script();
  if (run) {
    scene.step = std::max(fault.step, run->committed_step());
    if (const Member* member = run->Find(fault.worker); member != nullptr) {
      scene.host = member->attach.host();
      scene.phase = run->PhaseOf(*member);
    }
  }
  *status.mutable_failure() = MakeFailure(fault, scene);
  if (!fault.worker.empty()) {
    Tell({event_type::kWorkerFailed, Severity::kError, fault.reason, fault.worker});
  }
}

void Job::TellLast() {
  run->Describe(desk_.now, record.status);
  for (const Happening& told : progress_events_.Flush()) Tell(told);
}

void Job::DropRun() {
  run.reset();
  v1::JobStatus& status = record.status;
  status.clear_workers();
  status.clear_start_phases();
  status.clear_started_unix_ms();
  ForgetPlannedRing();
  // Nothing was computed with it: another ring may resolve the job anew.
  if (status.resumes_job().empty() && status.like_job().empty() && !status.has_continues()) {
    record.resolved.reset();
    status.clear_init();
    status.clear_total_steps();
    status.clear_steps_per_epoch();
  }
}

void Job::ForgetPlannedRing() {
  record.status.clear_generation();
  record.status.clear_resumed_from();
}

// ---- the queue ----------------------------------------------------------------------------------

void Job::Wait(const std::string& reason) {
  if (SetState(v1::JOB_STATE_QUEUED, reason)) Publish();
}

void Job::WaitBehind(const Job& head, size_t position) {
  const std::string reason = fmt::format("number {} in the queue: behind {}, which {}", position,
                                         head.record.id(), head.record.status.reason());
  advice_ = {
      head.advice_.empty()
          ? fmt::format("it starts after {0}: `ringctl why {0}` shows what that one waits for",
                        head.record.id())
          : fmt::format("it starts after {}, which this would start: {}", head.record.id(),
                        head.advice_.front()),
      fmt::format("`ringctl cancel {}` makes way for it", head.record.id())};
  if (record.status.reason().empty()) return Wait(reason);
  if (record.status.reason() == reason) return;
  record.status.set_reason(reason);
  ShowSoon();
}

// ---- what everyone sees -------------------------------------------------------------------------

bool Job::SetState(v1::JobState state, const std::string& reason) {
  v1::JobStatus& status = record.status;
  state_reason_ = reason;
  if (status.state() == state && status.reason() == reason) return false;
  status.set_state(state);
  status.set_reason(reason);
  std::string text = StateName(state);
  if (!reason.empty()) text += ": " + reason;
  Tell({TypeOf(state), state == v1::JOB_STATE_FAILED ? Severity::kError : Severity::kInfo,
        std::move(text)});
  return true;
}

void Job::Tell(const Happening& happening) {
  record.events.Add(happening, desk_.now.unix_ms, desk_.options.max_history);
  if (happening.type == event_type::kWorkerFailed) return;  // the end of the job says it too
  const bool state = happening.type == event_type::kStateChanged ||
                     happening.type == event_type::kFinished ||
                     happening.type == event_type::kCancelled;
  desk_.actions.push_back(Note{
      "job=" + record.id(), state ? happening.message : happening.type + ": " + happening.message});
}

void Job::Save() {
  KeepMetrics(Which::kAll);
  desk_.actions.push_back(SaveJob{record});
  Publish();
}

void Job::KeepMetrics(Which which) {
  if (!run) return;
  MetricHistory& history = run->history();
  MetricBatch batch = which == Which::kDue ? history.TakeDue(desk_.now) : history.Take(desk_.now);
  if (!batch.empty()) desk_.actions.push_back(SaveMetrics{record.id(), std::move(batch)});
}

void Job::Publish() {
  shown_at_ = desk_.now.steady;
  unshown_ = false;
  JobView view{record.status, record.events, {}, {}};
  if (record.status.spec().has_script()) {
    v1::JobSpec* const spec = view.status.mutable_spec();
    job::DropScriptContents(spec->mutable_script());
    if (record.resolved) job::TakeSaid(record.resolved->script(), spec);
  }
  for (const CheckpointRecord& checkpoint : checkpoints) {
    view.checkpoints.push_back(checkpoint.ref);
  }
  const v1::JobState state = record.status.state();
  if (state == v1::JOB_STATE_QUEUED || state == v1::JOB_STATE_WAITING) view.advice = advice_;
  desk_.actions.push_back(PublishJob{std::move(view)});
  if (!record.status.fold_of().empty()) ShowParent();
}

// A move in the queue is nothing to it, and hundreds of folds move at once.
void Job::ShowParent() {
  const v1::JobStatus& status = record.status;
  std::string shown = fmt::format("{} {} {}", status.total_steps(), status.started_unix_ms(),
                                  AsFold().SerializeAsString());
  if (std::exchange(fold_shown_, shown) != shown) desk_.show_parent(status.fold_of());
}

v1::Fold Job::AsFold() const {
  v1::Fold fold;
  fold.set_job_id(id());
  fold.set_state(state());
  fold.set_step(record.status.step());
  *fold.mutable_metrics() = record.status.metrics();
  return fold;
}

void Job::DescribeCheckpoints() {
  if (checkpoints.empty()) return;
  *record.status.mutable_checkpoint() = checkpoints.back().ref;
  const CheckpointRecord* best = BestOf(checkpoints, job::BestWatch(record.resolved->result()));
  if (best != nullptr) *record.status.mutable_best_checkpoint() = best->ref;
}

}  // namespace ringmaster::coordinator
