#include "worker/logic/worker_logic.h"

#include <fmt/format.h>

#include <utility>

#include "worker/logic/job_messages.h"

namespace ringmaster::worker {
namespace {

constexpr std::chrono::milliseconds kProgressInterval{250};
// An evaluation is news that the next progress does not repeat, as it speaks of another epoch.
constexpr std::chrono::milliseconds kEvaluationInterval{20};

GenerationId ToGeneration(const v1::Generation& generation) {
  return {generation.term(), generation.counter()};
}

Decision Nothing(std::string reason) { return {{}, std::move(reason)}; }

Decision Do(Action action, std::string reason) {
  Decision decision;
  decision.actions.push_back(std::move(action));
  decision.reason = std::move(reason);
  return decision;
}

}  // namespace

WorkerLogic::WorkerLogic(v1::Attach self, uint64_t highest_term)
    : self_(std::move(self)), highest_term_(highest_term) {}

Decision WorkerLogic::Step(const Event& event, Time now) {
  return std::visit([this, now](const auto& value) { return On(value, now); }, event);
}

Decision WorkerLogic::On(const Connected&, Time) {
  SendMessage send;
  v1::Attach& attach = *send.message.mutable_attach();
  attach = self_;
  attach.set_highest_term(highest_term_);
  if (job_) {
    attach.set_job_id(job_->id.value());
    Fill(job_->started, attach.mutable_generation());
    attach.set_applied(job_->state.applied);
    attach.set_digest(job_->state.digest);
  }
  return Do(std::move(send), "a session begins with attach");
}

Decision WorkerLogic::On(const Disconnected& event, Time) {
  attached_ = false;
  if (stopping_) return Do(Exit{}, "stopping: the session has ended");
  // Workers drive their own steps: a ring keeps training while the coordinator is away.
  return Nothing(fmt::format("session lost ({}); a running job goes on", event.reason));
}

Decision WorkerLogic::On(const FromCoordinator& event, Time) {
  const v1::CoordinatorMessage& message = event.message;
  if (message.has_attached()) return OnAttached(message.attached());
  if (!attached_) return Nothing("not attached: a message before Attached is ignored");
  switch (message.kind_case()) {
    case v1::CoordinatorMessage::kInspect:
      return OnInspect(message.inspect());
    case v1::CoordinatorMessage::kPrepare:
      return OnPrepare(message.prepare());
    case v1::CoordinatorMessage::kFence:
      return OnFence(message.fence());
    case v1::CoordinatorMessage::kStart:
      return OnStart(message.start());
    case v1::CoordinatorMessage::kCancel:
      return OnCancel(message.cancel());
    case v1::CoordinatorMessage::kRelease:
      return OnRelease(message.release());
    default:
      return Nothing("a message of a kind that this version does not know is ignored");
  }
}

Decision WorkerLogic::OnAttached(const v1::Attached& message) {
  if (message.term() < highest_term_) {
    return Do(CloseSession{fmt::format("the coordinator's term {} is lower than {}, which this "
                                       "worker obeyed before: its store is an older copy",
                                       message.term(), highest_term_)},
              "a term never goes back");
  }
  attached_ = true;
  Decision decision;
  decision.reason = fmt::format("attached in term {}", message.term());
  if (message.term() > highest_term_) {
    highest_term_ = message.term();
    decision.actions.emplace_back(SaveTerm{highest_term_});
  }
  if (job_ && !message.resume()) {
    Decision drop = Drop("the coordinator does not resume the job that was held");
    for (Action& action : drop.actions) decision.actions.push_back(std::move(action));
    decision.reason += "; " + drop.reason;
  }
  return decision;
}

Decision WorkerLogic::OnInspect(const v1::Inspect& message) {
  if (job_ || stopping_) {
    SendMessage send{Refusal(JobId(message.job_id()),
                             stopping_
                                 ? "the worker is stopping"
                                 : fmt::format("the worker still holds job {}", job_->id.value()))};
    return Do(std::move(send), "a worker serves one job at a time");
  }
  job_.emplace();
  job_->id = JobId(message.job_id());
  return Do(InspectDataset{job_->id, message.data()}, "inspect the dataset");
}

Decision WorkerLogic::On(const InspectDone& event, Time) {
  if (!job_ || job_->id != event.job) return Nothing("the job is gone");
  job_->phase = Phase::kInspected;
  if (job_->drop_when_idle) return Drop("dropped while its dataset was inspected");
  return Do(SendMessage{InspectedMessage(event)},
            event.error.empty() ? "dataset inspected" : event.error);
}

Decision WorkerLogic::OnPrepare(const v1::Prepare& message) {
  if (!Has(message.job_id()) || job_->phase != Phase::kInspected) {
    return Nothing("prepare for a job that was not inspected here is ignored");
  }
  job_->phase = Phase::kPreparing;
  return Do(PrepareJob{job_->id, message.job()}, "prepare the job");
}

Decision WorkerLogic::On(const PrepareDone& event, Time) {
  if (!job_ || job_->id != event.job) return Nothing("the job is gone");
  job_->phase = Phase::kPrepared;
  job_->state.digest = event.digest;
  if (job_->drop_when_idle) return Drop("dropped while it was prepared");
  return Do(SendMessage{PreparedMessage(event)},
            event.error.empty() ? "job prepared" : event.error);
}

Decision WorkerLogic::On(const PhaseChanged& event, Time) {
  if (!job_ || job_->id != event.job) return Nothing("a phase of a job that is gone");
  return Do(SendMessage{PhaseMessage(event)},
            fmt::format("phase {}; the one before took {:.3f} s", event.phase, event.seconds));
}

Action WorkerLogic::FenceAck() const {
  return SendMessage{FenceAckMessage(job_->id, job_->fenced, job_->state)};
}

Decision WorkerLogic::OnFence(const v1::Fence& message) {
  const GenerationId generation = ToGeneration(message.generation());
  if (!Has(message.job_id()) || job_->phase < Phase::kPrepared) {
    return Nothing("fence for a job that is not prepared here is ignored");
  }
  if (generation <= job_->fenced) return Nothing("an old fence is ignored");
  job_->fenced = generation;
  if (job_->phase == Phase::kRunning) {
    job_->after_run = AfterRun::kAcknowledgeFence;
    return Do(CancelRun{"fenced by generation " + generation.ToString()},
              "stop applying before acknowledging the fence");
  }
  return Do(FenceAck(), "nothing is being applied: acknowledge");
}

Decision WorkerLogic::OnStart(const v1::Start& message) {
  const GenerationId generation = ToGeneration(message.generation());
  if (!Has(message.job_id()) || job_->phase != Phase::kPrepared) {
    return Nothing("start for a job that is not ready here is ignored");
  }
  if (generation != job_->fenced || generation <= job_->started) {
    return Nothing(fmt::format("start of generation {} is not the one fenced last ({})",
                               generation.ToString(), job_->fenced.ToString()));
  }
  if (message.start_step() != job_->state.applied) {
    SendMessage send{
        FailedMessage(job_->id, generation, message.start_step(),
                      fmt::format("told to start at step {} but holds the state of step {}",
                                  message.start_step(), job_->state.applied))};
    return Do(std::move(send), "the state for this start is not here");
  }
  job_->started = generation;
  job_->phase = Phase::kRunning;
  job_->after_run = AfterRun::kReport;
  return Do(RunJob{job_->id, message}, "run generation " + generation.ToString());
}

Decision WorkerLogic::On(const RunProgress& event, Time now) {
  if (!Has(event.progress.job_id()) || job_->phase != Phase::kRunning) {
    return Nothing("progress of a run that ended");
  }
  job_->state.applied = event.progress.applied();
  job_->state.digest = event.progress.digest();
  const auto interval = event.evaluated ? kEvaluationInterval : kProgressInterval;
  if (now - job_->last_progress < interval) {
    job_->held_back = event.progress;
    return Nothing("progress is sent 4 x a second, and after evaluations");
  }
  job_->last_progress = now;
  job_->held_back.reset();
  SendMessage send;
  *send.message.mutable_progress() = event.progress;
  return Do(std::move(send), "progress");
}

Action WorkerLogic::JobStopped() const {
  return SendMessage{StoppedMessage(job_->id, job_->state.applied)};
}

Decision WorkerLogic::OnCancel(const v1::Cancel& message) {
  if (!Has(message.job_id())) return Nothing("cancel of a job that is not here is ignored");
  if (job_->phase == Phase::kRunning) {
    job_->after_run = AfterRun::kReportStopped;
    return Do(CancelRun{message.reason()}, "stop at the step boundary");
  }
  return Do(JobStopped(), "nothing is running: stopped at once");
}

Decision WorkerLogic::OnRelease(const v1::Release& message) {
  if (!Has(message.job_id())) return Nothing("release of a job that is not here is ignored");
  return Drop("released by the coordinator");
}

Decision WorkerLogic::Drop(const std::string& reason) {
  if (job_->phase == Phase::kRunning) {
    job_->after_run = AfterRun::kDrop;
    return Do(CancelRun{reason}, reason);
  }
  if (job_->phase == Phase::kInspecting || job_->phase == Phase::kPreparing) {
    job_->drop_when_idle = true;
    return Nothing(reason + "; as soon as its preparation returns");
  }
  const JobId id = job_->id;
  job_.reset();
  return Do(DropJob{id}, reason);
}

Decision WorkerLogic::On(const RunJoined&, Time) { return Nothing("joined"); }
Decision WorkerLogic::On(const PeerSuspected&, Time) { return Nothing("suspected"); }
Decision WorkerLogic::On(const StateDelivered&, Time) { return Nothing("delivered"); }

Decision WorkerLogic::On(const RunEnded& event, Time) {
  if (!job_ || job_->id != event.job || job_->phase != Phase::kRunning) {
    return Nothing("the end of a run that is gone");
  }
  job_->phase = Phase::kPrepared;
  job_->state.applied = event.applied;
  job_->state.digest = event.digest;
  std::vector<Action> actions;
  if (job_->held_back) {
    SendMessage send;
    *send.message.mutable_progress() = *std::exchange(job_->held_back, std::nullopt);
    actions.emplace_back(std::move(send));
  }
  Decision decision = AfterRunEnded(event);
  for (Action& action : decision.actions) actions.push_back(std::move(action));
  decision.actions = std::move(actions);
  return decision;
}

Decision WorkerLogic::AfterRunEnded(const RunEnded& event) {
  switch (job_->after_run) {
    case AfterRun::kAcknowledgeFence:
      return Do(FenceAck(), "stopped applying: acknowledge the fence");
    case AfterRun::kReportStopped:
      return Do(JobStopped(), "stopped at a step boundary");
    case AfterRun::kDrop:
      return Drop("the run ended; the job is dropped");
    case AfterRun::kReport:
      return Do(SendMessage{EndMessage(event)},
                event.outcome == Outcome::kFinished ? "finished" : event.reason);
  }
  return Nothing("unreachable");
}

Decision WorkerLogic::On(const StopRequested& event, Time) {
  if (stopping_) return Nothing("stopping already");
  stopping_ = true;
  Decision decision;
  decision.reason = event.reason;
  if (attached_) {
    SendMessage send;
    send.message.mutable_leaving()->set_reason(event.reason);
    decision.actions.emplace_back(std::move(send));
  }
  if (job_ && job_->phase == Phase::kRunning) {
    job_->after_run = AfterRun::kReportStopped;
    decision.actions.emplace_back(CancelRun{event.reason});
  }
  decision.actions.emplace_back(Exit{});
  return decision;
}

}  // namespace ringmaster::worker
