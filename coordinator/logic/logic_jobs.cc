// The part of Logic that brings a job from its workers' choice to its end, and records what
// happened to it.
#include <algorithm>
#include <utility>

#include "coordinator/logic/logic.h"

namespace ringmaster::coordinator {
namespace {

// `a (shards 0 to 1), b (shard 2)`
std::string DescribePlaces(const v1::JobStatus& status) {
  std::string text;
  for (const v1::JobWorker& worker : status.workers()) {
    const uint32_t first = worker.shards(0), last = worker.shards(worker.shards_size() - 1);
    text += fmt::format("{}{} ({})", text.empty() ? "on " : ", ", worker.name(),
                        first == last ? fmt::format("shard {}", first)
                                      : fmt::format("shards {} to {}", first, last));
  }
  return text;
}

bool IsLoss(Cause cause) { return cause == Cause::kWorkerLost || cause == Cause::kWorkerLeft; }

// The event of a state.
const char* TypeOf(v1::JobState state) {
  if (state == v1::JOB_STATE_CANCELLED) return event_type::kCancelled;
  return IsFinal(state) ? event_type::kFinished : event_type::kStateChanged;
}

}  // namespace

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
  job.progress_events = {};
  job.first_step = false;
  job.run->Describe(now_, job.record.status);
  job.record.status.set_started_unix_ms(now_.unix_ms);
  Record(job, {event_type::kPlaced, Severity::kInfo, DescribePlaces(job.record.status)});
  SetState(job, v1::JOB_STATE_STARTING, fmt::format("checks the dataset on {}", names));
  Save(job);
  job.run->Begin(now_, actions_);
}

void Logic::Advance(Job& job, const Fault& fault) {
  if (!fault.ok()) return Fail(job, fault);
  Run& run = *job.run;
  run.Describe(now_, job.record.status);
  const bool first_step = Observe(job);
  if (run.phase() == Phase::kDone) {
    if (job.record.cancel_requested) {
      return End(job, v1::JOB_STATE_CANCELLED, "cancelled on request");
    }
    return End(job, v1::JOB_STATE_SUCCEEDED, "");
  }
  const bool resolved_now = run.resolved() && !job.record.resolved;
  const bool runs_now =
      run.phase() == Phase::kRunning && job.record.status.state() == v1::JOB_STATE_STARTING;
  if (resolved_now) {
    job.record.resolved = run.resolved();
    SetState(job, v1::JOB_STATE_STARTING, "builds the job and compares the known shard");
  } else if (runs_now) {
    SetState(job, v1::JOB_STATE_RUNNING, "");
  }
  ShowPhase(job);
  if (resolved_now || runs_now || first_step) return Save(job);
  Publish(job);
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
  if (job.record.cancel_requested) return;
  const std::string phase = job.run->phases().Reason();
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
    Record(job, {IsLoss(fault.cause) ? event_type::kWorkerLost : event_type::kWorkerFailed,
                 Severity::kError, fault.reason, fault.worker});
  }
  End(job, v1::JOB_STATE_FAILED, fault.reason);
}

void Logic::End(Job& job, v1::JobState state, const std::string& reason) {
  if (job.run) {
    job.run->Describe(now_, job.record.status);
    for (const Happening& told : job.progress_events.Flush()) Record(job, told);
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
  if (happening.subject != Happening().subject) return;  // the end of the job says it too
  const bool state = happening.type == event_type::kStateChanged ||
                     happening.type == event_type::kFinished ||
                     happening.type == event_type::kCancelled;
  actions_.push_back(Note{"job=" + job.record.id(),
                          state ? happening.message : happening.type + ": " + happening.message});
}

void Logic::Save(Job& job) {
  actions_.push_back(SaveJob{job.record});
  Publish(job);
}

void Logic::Publish(Job& job) {
  job.shown_at = now_.steady;
  JobView view{job.record.status, job.record.events, {}, {}};
  for (const CheckpointRecord& checkpoint : job.checkpoints) {
    view.checkpoints.push_back(checkpoint.ref);
  }
  if (job.record.status.state() == v1::JOB_STATE_QUEUED) view.advice = job.advice;
  actions_.push_back(PublishJob{std::move(view)});
}

void Logic::Answer(Refusal refusal, const std::string& job_id) {
  actions_.push_back(Reply{std::move(refusal), job_id, false});
}

}  // namespace ringmaster::coordinator
