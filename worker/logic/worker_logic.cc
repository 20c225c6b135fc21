#include "worker/logic/worker_logic.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ringmaster::worker {
namespace {

// Of a coordinator, while its term is being stored: it says a few, and then waits for answers.
constexpr size_t kMostHeld = 64;

}  // namespace

WorkerLogic::WorkerLogic(v1::Attach self, uint64_t highest_term)
    : self_(std::move(self)), highest_term_(highest_term) {}

Decision WorkerLogic::Step(const Event& event, Time now) {
  Decision decision = std::visit([this, now](const auto& value) { return On(value, now); }, event);
  if (attached_) return decision;
  // The coordinator hears nothing but Attach before it attached: what matters is kept.
  std::erase_if(decision.actions, [](const Action& action) {
    const auto* send = std::get_if<SendMessage>(&action);
    return send != nullptr && !send->message.has_attach();
  });
  return decision;
}

Decision WorkerLogic::On(const Connected&, Time) {
  SendMessage send;
  v1::Attach& attach = *send.message.mutable_attach();
  attach = self_;
  attach.set_highest_term(highest_term_);
  if (job_ && !job_->dropping()) {  // prepared: else it was dropped with its session
    attach.set_job_id(job_->id.value());
    // A run that is fenced ends, or has ended: nobody may take it for one that goes on.
    if (job_->fenced == job_->started) Fill(job_->started, attach.mutable_generation());
    attach.set_applied(job_->state.applied);
    attach.set_digest(job_->state.digest);
    for (const std::string& sha256 : job_->known_shard_sha256) {
      attach.add_known_shard_sha256(sha256);
    }
    *attach.mutable_class_maps() = job_->class_maps;
    for (const auto& [step, manifest] : job_->snapshots) {
      v1::Snapshot& snapshot = *attach.add_snapshots();
      snapshot.set_step(step);
      snapshot.set_manifest_sha256(manifest);
    }
  }
  return Do(std::move(send), "a session begins with attach");
}

Decision WorkerLogic::On(const Disconnected& event, Time) {
  attached_ = false;
  waiting_.reset();
  held_.clear();
  next_.reset();
  if (stopping_ && !(job_ && job_->ever_started())) {
    return Do(Exit{}, fmt::format("stopping: the session has ended ({})", event.reason));
  }
  if (job_ && job_->phase < Phase::kPrepared && !job_->dropping()) {
    return Drop(
        fmt::format("session lost: {}; the job was not prepared yet: dropped", event.reason));
  }
  // Workers drive their own steps: a ring keeps training while the coordinator is away.
  Decision decision = Nothing(fmt::format("session lost: {}{}", event.reason,
                                          job_ && job_->running() ? "; the run goes on" : ""));
  EndBench("the session that asked for it was lost", &decision);
  return decision;
}

Decision WorkerLogic::On(const FromCoordinator& event, Time now) {
  const v1::CoordinatorMessage& message = event.message;
  if (message.has_attached()) return OnAttached(message.attached(), now);
  if (waiting_) {
    held_.push_back(message);
    if (held_.size() <= kMostHeld) return Nothing("held until the new term is stored");
    return Do(CloseSession{"too much is said while the new term is being stored"},
              "the new term takes too long to be stored");
  }
  if (!attached_) return Nothing("not attached: a message before Attached is ignored");
  return OnMessage(message);
}

Decision WorkerLogic::OnMessage(const v1::CoordinatorMessage& message) {
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
    case v1::CoordinatorMessage::kMeasureRing:
      return OnMeasureRing(message.measure_ring());
    case v1::CoordinatorMessage::kEndMeasuring:
      return OnEndMeasuring(message.end_measuring());
    case v1::CoordinatorMessage::kSaveState:
      return OnSaveState(message.save_state());
    case v1::CoordinatorMessage::kCheckpointKept:
      return OnCheckpointKept(message.checkpoint_kept());
    default:
      return Nothing("a message of a kind that this version does not know is ignored");
  }
}

Decision WorkerLogic::OnAttached(const v1::Attached& message, Time now) {
  if (message.term() < highest_term_) {
    return Do(CloseSession{fmt::format("the coordinator's term {} is lower than {}, which this "
                                       "worker obeyed before: its store is an older copy",
                                       message.term(), highest_term_)},
              "a term never goes back");
  }
  if (message.term() == highest_term_) return Obey(message, now);
  waiting_ = message;
  return Do(SaveTerm{message.term()},
            fmt::format("term {} is stored before it is obeyed", message.term()));
}

Decision WorkerLogic::On(const TermStored& event, Time now) {
  if (event.error.empty()) highest_term_ = std::max(highest_term_, event.term);
  if (!waiting_ || waiting_->term() != event.term) return Nothing("of a session that is over");
  const v1::Attached attached = *std::exchange(waiting_, std::nullopt);
  const std::vector<v1::CoordinatorMessage> held = std::exchange(held_, {});
  if (!event.error.empty()) {
    return Do(CloseSession{fmt::format("term {} cannot be stored", event.term)},
              fmt::format("term {} cannot be stored, so its coordinator is not obeyed: {}",
                          event.term, event.error));
  }
  // A session before this one asked for more, and only now it is on the disk.
  if (attached.term() < highest_term_) return OnAttached(attached, now);
  Decision decision = Obey(attached, now);
  for (const v1::CoordinatorMessage& message : held) {
    Decision next = OnMessage(message);
    for (Action& action : next.actions) decision.actions.push_back(std::move(action));
    decision.reason += "; " + next.reason;
  }
  return decision;
}

Decision WorkerLogic::Obey(const v1::Attached& message, Time now) {
  attached_ = true;
  Decision decision;
  if (!message.ticket().empty()) decision.actions.emplace_back(UseTicket{message.ticket()});
  // More often than this the network would be busy with nothing else.
  constexpr uint32_t kLeastMs = 10;
  heartbeat_interval_ = std::chrono::milliseconds(std::max(message.heartbeat_ms(), kLeastMs));
  decision.reason = fmt::format("attached in term {}", message.term());
  if (job_ && !job_->dropping() && message.resume()) {
    job_->last_progress.reset();
    job_->lasting.TellAgain();
    if (!job_->running() || !job_->snapshots.empty()) TellLasting(&decision.actions);
    // Once more: one may have been taken since Attach was sent.
    TellSnapshots(&decision.actions);
    TellDropped(now, &decision.actions);
    for (v1::WorkerMessage& report : job_->reports.All()) {
      decision.actions.emplace_back(SendMessage{std::move(report)});
    }
  } else if (job_ && !job_->dropping()) {
    Decision drop = Drop("the coordinator does not resume the job that was held");
    for (Action& action : drop.actions) decision.actions.push_back(std::move(action));
    decision.reason += "; " + drop.reason;
  }
  if (stopping_) decision.actions.emplace_back(SendMessage{LeavingMessage(stop_reason_)});
  return decision;
}

Decision WorkerLogic::OnInspect(const v1::Inspect& message) {
  if (stopping_) {
    return Do(SendMessage{Refusal(JobId(message.job_id()), "the worker is stopping")},
              "a worker that leaves takes no job");
  }
  if (bench_) {
    next_ = message;
    Decision decision = Nothing("the dataset is inspected as soon as the bench has ended");
    EndBench("a job is given to this worker", &decision);
    return decision;
  }
  if (!job_) return BeginInspect(message);
  if (job_->dropping()) {
    next_ = message;
    return Nothing("the dataset is inspected as soon as the job before it is gone");
  }
  return Do(SendMessage{Refusal(JobId(message.job_id()),
                                fmt::format("the worker still holds job {}", job_->id.value()))},
            "a worker serves one job at a time");
}

Decision WorkerLogic::BeginInspect(const v1::Inspect& message) {
  job_.emplace();
  job_->id = JobId(message.job_id());
  InspectDataset inspect{job_->id, message.data(), std::nullopt};
  if (message.has_init()) inspect.init = message.init();
  inspect.peers = {message.peers().begin(), message.peers().end()};
  inspect.data_ticket = message.data_ticket();
  if (message.has_script()) inspect.script = message.script();
  return Do(std::move(inspect), "inspect the dataset");
}

Decision WorkerLogic::On(const InspectDone& event, Time) {
  if (!job_ || job_->id != event.job) return Nothing("the job is gone");
  job_->phase = Phase::kInspected;
  if (job_->drop_when_idle) return Drop("dropped while its dataset was inspected");
  return Do(SendMessage{InspectedMessage(event)},
            event.error.empty() ? "dataset inspected" : event.error);
}

Decision WorkerLogic::OnPrepare(const v1::Prepare& message) {
  // A second one brings other class maps.
  const bool again = Has(message.job_id()) && job_->phase == Phase::kPrepared &&
                     !job_->ever_started() && !job_->delivering;
  if (!Has(message.job_id()) || (job_->phase != Phase::kInspected && !again)) {
    return Nothing("prepare for a job that was not inspected here is ignored");
  }
  job_->phase = Phase::kPreparing;
  job_->class_maps = message.job().result().class_maps();
  return Do(PrepareJob{job_->id, message.job(), message.joins()}, "prepare the job");
}

Decision WorkerLogic::On(const PrepareDone& event, Time) {
  if (!job_ || job_->id != event.job) return Nothing("the job is gone");
  job_->phase = event.error.empty() ? Phase::kPrepared : Phase::kInspected;
  job_->state.digest = event.digest;
  job_->known_shard_sha256 = event.known_shard_sha256;
  if (job_->drop_when_idle) return Drop("dropped while it was prepared");
  return Do(SendMessage{PreparedMessage(event)},
            event.error.empty() ? "job prepared" : event.error);
}

Decision WorkerLogic::On(const PhaseChanged& event, Time) {
  if (!job_ || job_->id != event.job) return Nothing("a phase of a job that is gone");
  return Do(SendMessage{PhaseMessage(event)},
            fmt::format("phase {}; the one before took {:.3f} s", event.phase, event.seconds));
}

Decision WorkerLogic::Drop(const std::string& reason) {
  Decision decision;
  decision.reason = reason;
  if (job_->running()) {
    job_->after_run = AfterRun::kDrop;
    EndRun(reason, RunStop::kNow, &decision);
    decision.actions.emplace_back(EndWaits{job_->id});
    return decision;
  }
  if (job_->phase == Phase::kInspecting || job_->phase == Phase::kPreparing) {
    job_->drop_when_idle = true;
    if (job_->phase == Phase::kInspecting) {
      decision.actions.emplace_back(EndInspection{job_->id});
    } else {
      decision.actions.emplace_back(EndWaits{job_->id});
    }
    decision.reason += "; as soon as its preparation returns";
    return decision;
  }
  decision.actions.emplace_back(DropJob{job_->id, job_->data_differs});
  job_.reset();
  if (next_) {
    Decision inspect = BeginInspect(*std::exchange(next_, std::nullopt));
    for (Action& action : inspect.actions) decision.actions.push_back(std::move(action));
  }
  return decision;
}

Decision WorkerLogic::On(const StopRequested& event, Time) {
  Decision decision;
  decision.reason = event.reason;
  if (std::exchange(stopping_, true)) {
    if (job_ && job_->running()) EndRun(event.reason, RunStop::kNow, &decision);
    decision.actions.emplace_back(Exit{});
    return decision;
  }
  stop_reason_ = event.reason;
  if (attached_) {
    // The coordinator fences it out, releases it, and ends the session of a free one.
    decision.actions.emplace_back(SendMessage{LeavingMessage(event.reason)});
  } else if (!job_ || !job_->ever_started()) {
    decision.actions.emplace_back(Exit{});
  }
  return decision;
}

}  // namespace ringmaster::worker
