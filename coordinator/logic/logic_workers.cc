// The half of Logic that listens to workers.
#include <algorithm>
#include <utility>

#include "coordinator/logic/logic.h"

namespace ringmaster::coordinator {
namespace {

using Kind = v1::WorkerMessage::KindCase;

// The job that a message is about; empty for those about the worker alone.
std::string JobIn(const v1::WorkerMessage& message) {
  switch (message.kind_case()) {
    case Kind::kInspected:
      return message.inspected().job_id();
    case Kind::kPrepared:
      return message.prepared().job_id();
    case Kind::kFenceAck:
      return message.fence_ack().job_id();
    case Kind::kProgress:
      return message.progress().job_id();
    case Kind::kSuspicion:
      return message.suspicion().job_id();
    case Kind::kJobFailed:
      return message.job_failed().job_id();
    case Kind::kJobStopped:
      return message.job_stopped().job_id();
    case Kind::kJobFinished:
      return message.job_finished().job_id();
    case Kind::kPhaseEntered:
      return message.phase_entered().job_id();
    default:
      return "";
  }
}

Fault WorkerFailed(const Run& run, const Member& member, const v1::JobFailed& said) {
  return {CauseOfError(said.reason()),
          fmt::format("{} failed {}: {}", member.called(), At(said.step(), run.PhaseOf(member)),
                      said.reason()),
          member.name(), said.step()};
}

// The suspected peer is the one that is named first: its neighbour only noticed.
Fault Suspected(Run& run, const Member& from, const v1::Suspicion& said) {
  if (said.peer().empty()) {
    return {Cause::kRingLost,
            fmt::format("{} lost its ring {}: {}", from.called(),
                        At(said.step(), run.PhaseOf(from)), said.reason()),
            "", said.step()};
  }
  const Member* peer = run.Find(said.peer());
  return {Cause::kWorkerLost,
          fmt::format("{} was lost {}: its neighbour {} reports: {}",
                      peer == nullptr ? Called(said.peer(), "") : peer->called(),
                      At(said.step(), peer == nullptr ? "" : run.PhaseOf(*peer)), from.name(),
                      said.reason()),
          said.peer(), said.step()};
}

}  // namespace

void Logic::On(const SessionOpened& event) { fleet_.Open(event.session, now_); }

void Logic::On(const SessionClosed& event) {
  Lose(event.session, Cause::kWorkerLost, fmt::format("its session broke ({})", event.reason));
}

void Logic::On(const DrainAsked&) { Answer({}); }
void Logic::On(const CheckpointFound&) {}

void Logic::On(const TermRaised& event) {
  term_ = event.term;
  counter_ = 0;
}

void Logic::On(const WorkerSaid& event) {
  if (!fleet_.IsOpen(event.session)) return;  // closed by us, its last words still on the way
  Worker* worker = fleet_.Find(event.session);
  if (worker == nullptr) {
    if (event.message.has_attach()) return Attach(event.session, event.message.attach());
    return Refuse(event.session, {InvalidArgument("the first message of a session is Attach"),
                                  "PROTOCOL_VIOLATION"});
  }
  worker->last_heard = now_.steady;
  switch (event.message.kind_case()) {
    case Kind::kHeartbeat:
      return Hear(*worker, event.message.heartbeat());
    case Kind::kLeaving: {
      const std::string reason = event.message.leaving().reason();
      Refuse(event.session, {absl::OkStatus(), ""});
      return Lose(event.session, Cause::kWorkerLeft, reason);
    }
    case Kind::kAttach:
    case Kind::KIND_NOT_SET:
      Refuse(event.session, {InvalidArgument("a session has one Attach, and no empty messages"),
                             "PROTOCOL_VIOLATION"});
      return Lose(event.session, Cause::kProtocolViolation, "it violated the protocol");
    default:
      return HearAboutJob(*worker, event.message);
  }
}

void Logic::Attach(SessionId session, const v1::Attach& attach) {
  std::optional<SessionId> superseded;
  Refusal refusal = fleet_.Check(attach, &superseded);
  if (!refusal.status.ok()) return Refuse(session, std::move(refusal));
  if (attach.highest_term() > term_) {
    // The store is older than the worker: it was restored from a copy. This reign must count above
    // every term that was ever obeyed, durably, before the worker may come back.
    actions_.push_back(RaiseTerm{attach.highest_term() + 1});
    return Refuse(session,
                  {Error(absl::StatusCode::kUnavailable,
                         "worker {} obeyed term {}, this coordinator is at {}: it raises its "
                         "term, attach again",
                         attach.name(), attach.highest_term(), term_),
                   "TERM_TOO_LOW"});
  }
  if (superseded) {
    Refuse(*superseded, {Error(absl::StatusCode::kAborted, "the worker opened a newer session"),
                         "SESSION_SUPERSEDED"});
    Lose(*superseded, Cause::kWorkerLost, "it opened a new session");
  }
  Worker& worker = fleet_.Add(session, attach, now_);
  fleet_changed_ = true;
  v1::CoordinatorMessage message;
  v1::Attached& attached = *message.mutable_attached();
  attached.set_term(term_);
  attached.set_heartbeat_ms(static_cast<uint32_t>(options_.heartbeat.count()));
  attached.set_resume(false);
  actions_.push_back(Send{session, message});
  actions_.push_back(Note{"worker=" + attach.name(),
                          fmt::format("attached with {} core{} at {}", attach.cores(),
                                      attach.cores() == 1 ? "" : "s", attach.ring_address())});
  if (attach.job_id().empty()) return;
  message.mutable_release()->set_job_id(attach.job_id());
  actions_.push_back(Send{session, message});
  worker.heartbeat.set_job_id(attach.job_id());
  worker.releasing = true;
  worker.released_at = now_.steady;
}

void Logic::Hear(Worker& worker, const v1::Heartbeat& heartbeat) {
  // A heartbeat without job may have crossed the messages that gave and took the job; it surely
  // means "free again" after one with the job, or a while later.
  const bool knew = !worker.heartbeat.job_id().empty();
  worker.heartbeat = heartbeat;
  if (worker.releasing && heartbeat.job_id().empty() &&
      (knew || now_.steady - worker.released_at >= options_.settle)) {
    worker.releasing = false;
    fleet_changed_ = true;
  }
  Job* job = JobOf(worker);
  if (job == nullptr || heartbeat.job_id() != job->record.id()) return;
  job->run->OnHeartbeat(*job->run->Find(worker.name()), heartbeat, now_);
}

void Logic::HearAboutJob(Worker& worker, const v1::WorkerMessage& message) {
  Job* job = JobOf(worker);
  if (job == nullptr || JobIn(message) != job->record.id()) return;  // of a job that is over
  Run& run = *job->run;
  Member& from = *run.Find(worker.name());
  switch (message.kind_case()) {
    case Kind::kInspected:
      return Advance(*job, run.OnInspected(from, message.inspected(), now_, actions_));
    case Kind::kPrepared:
      return Advance(*job, run.OnPrepared(from, message.prepared(), now_, actions_));
    case Kind::kFenceAck:
      return Advance(*job, run.OnFenceAck(from, message.fence_ack(), now_, actions_));
    case Kind::kProgress:
      return Advance(*job, run.OnProgress(from, message.progress(), now_));
    case Kind::kJobFinished:
      return Advance(*job, run.OnFinished(from, message.job_finished(), now_));
    case Kind::kJobStopped:
      run.OnStopped(from);
      return Advance(*job, {});
    case Kind::kPhaseEntered:
      run.OnPhase(from, message.phase_entered(), now_);
      return Advance(*job, {});
    case Kind::kJobFailed:
      if (run.started() && !run.IsCurrent(message.job_failed().generation())) return;
      return Advance(*job, WorkerFailed(run, from, message.job_failed()));
    case Kind::kSuspicion:
      if (run.phase() != Phase::kRunning || !run.IsCurrent(message.suspicion().generation()))
        return;
      return Advance(*job, Suspected(run, from, message.suspicion()));
    default:
      return;
  }
}

void Logic::Refuse(SessionId session, Refusal refusal) {
  if (!refusal.status.ok()) {
    actions_.push_back(Note{fmt::format("session={}", static_cast<uint64_t>(session)),
                            "closed: " + Message(refusal.status)});
  }
  if (fleet_.Find(session) == nullptr) fleet_.Close(session);
  actions_.push_back(CloseSession{session, std::move(refusal)});
}

void Logic::Lose(SessionId session, Cause cause, const std::string& why) {
  const std::optional<Worker> worker = fleet_.Close(session);
  if (!worker) return;
  fleet_changed_ = true;
  const std::string how = cause == Cause::kWorkerLeft ? "left" : "was lost";
  actions_.push_back(Note{"worker=" + worker->name(), how + ": " + why});
  Job* job = JobOf(*worker);
  if (job == nullptr) return;
  Run& run = *job->run;
  Member& member = *run.Find(worker->name());
  if (run.phase() == Phase::kStopping) {
    run.OnStopped(member);
    return Advance(*job, {});
  }
  const uint64_t step = std::max(worker->heartbeat.applied(), run.committed_step());
  Fail(*job, {cause,
              fmt::format("{} {} {}: {}", member.called(), how, At(step, run.PhaseOf(member)), why),
              worker->name(), step});
}

Logic::Job* Logic::JobOf(const Worker& worker) {
  if (worker.job.empty()) return nullptr;
  Job* job = Find(worker.job.value());
  return job != nullptr && job->run ? job : nullptr;
}

}  // namespace ringmaster::coordinator
