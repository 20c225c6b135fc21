// The part of Logic that knows who is attached: workers come, are lost, leave and are drained.

#include <algorithm>
#include <utility>

#include "common/planted_bug.h"
#include "common/text.h"
#include "coordinator/logic/logic.h"

namespace ringmaster::coordinator {
namespace {

// Of workers, attached and gone, how many times the most that may be attached are known to have
// obeyed this term.
constexpr size_t kObeyedKept = 4;
// How far a worker's highest term may be above this reign's; fleet.proto says why.
constexpr uint64_t kMaxTermLead = uint64_t{1} << 24;

Refusal CheckTerm(const v1::Attach& attach, uint64_t term) {
  const uint64_t most = term + std::min(kMaxTermLead, kMaxTerm - 1 - std::min(term, kMaxTerm - 1));
  if (attach.highest_term() <= most || RING_PLANTED(kTakesAnyTerm)) return {};
  return {InvalidArgument(
              "worker {}: highest_term is {}, expected at most {}: this is term {}, and no older "
              "copy of its store lacks so many; the file `term` in the worker's --state-dir is "
              "damaged or another cluster's: start the worker with another --state-dir",
              attach.name(), attach.highest_term(), most, term),
          "INVALID_ATTACH"};
}

}  // namespace

void Logic::On(const SessionOpened& event) { fleet_.Open(event.session, now_); }

void Logic::On(const SessionClosed& event) {
  Lose(event.session, fmt::format("its session broke ({})", event.reason));
}

void Logic::On(const TermRaised& event) {
  generations_.BeginTerm(event.term);
  obeyed_.clear();
}

void Logic::Attach(SessionId session, const v1::Attach& attach) {
  std::optional<SessionId> superseded;
  Refusal refusal = fleet_.Check(attach, &superseded);
  if (refusal.status.ok()) refusal = CheckTerm(attach, generations_.term());
  if (!refusal.status.ok()) return Refuse(session, std::move(refusal));
  const bool obeyed_it_elsewhere = attach.highest_term() == generations_.term() &&
                                   !obeyed_.contains(attach.name()) &&
                                   !RING_PLANTED(kTermNotDurable);
  if (attach.highest_term() > generations_.term() || obeyed_it_elsewhere) {
    // The store is older than the worker: it was restored from a copy, perhaps so that this reign
    // has the term of one that the copy does not know. It must count above every term that was ever
    // obeyed, durably, before the worker may come back.
    actions_.push_back(RaiseTerm{attach.highest_term() + 1});  // no overflow: CheckTerm
    return Refuse(session,
                  {Error(absl::StatusCode::kUnavailable,
                         "worker {} obeyed term {}, this coordinator is at {}: it raises its "
                         "term, attach again",
                         attach.name(), attach.highest_term(), generations_.term()),
                   "TERM_TOO_LOW"});
  }
  if (superseded) {
    Refuse(*superseded, {Error(absl::StatusCode::kAborted, "the worker opened a newer session"),
                         "SESSION_SUPERSEDED"});
    Lose(*superseded, "it opened a new session");
  }
  Worker& worker = fleet_.Add(session, attach, now_);
  fleet_changed_ = true;
  TakeBack(worker);
}

// Of names that come and go without end those that are gone are forgotten: who of them is back
// raises the term, which is never wrong.
void Logic::KeepObeyed(const std::string& worker) {
  if (obeyed_.contains(worker)) return;
  if (obeyed_.size() >= kObeyedKept * options_.max_workers) {
    std::erase_if(obeyed_,
                  [this](const std::string& name) { return fleet_.Find(name) == nullptr; });
  }
  obeyed_.insert(worker);
}

void Logic::TakeBack(Worker& worker) {
  const v1::Attach& attach = worker.attach;
  Job* job = Find(attach.job_id());
  const bool resume = job != nullptr && job->run && job->run->MayReturn(attach);
  v1::Attached attached;
  attached.set_term(generations_.term());
  KeepObeyed(attach.name());
  attached.set_heartbeat_ms(static_cast<uint32_t>(options_.heartbeat.count()));
  attached.set_resume(resume);
  actions_.push_back(Admit{worker.session, attach.name(), attached});
  actions_.push_back(Note{"worker=" + attach.name(),
                          fmt::format("attached with {} core{} at {}", attach.cores(),
                                      attach.cores() == 1 ? "" : "s", attach.ring_address())});
  worker.heartbeat.set_job_id(attach.job_id());
  for (auto& [number, other] : unfinished_) {
    if (!other->run || (resume && other == job)) continue;
    other->run->OnStranger(attach, now_);
  }
  if (resume) {
    worker.job = JobId(attach.job_id());
    job->run->Return(worker, now_, actions_);
    worker.joining = !job->run->InRing(attach.name());
    google::protobuf::RepeatedField<uint64_t> held;
    for (const v1::Snapshot& snapshot : attach.snapshots()) held.Add(snapshot.step());
    for (const v1::Snapshot& snapshot : attach.snapshots()) {
      const Member* member = job->run ? job->run->Find(attach.name()) : nullptr;
      if (member != nullptr) HearSnapshot(*job, *member, snapshot, held);
    }
    if (job->run) Advance(*job, {});
  } else if (!attach.job_id().empty()) {
    ReleaseWorker(attach.job_id(), worker);
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

void Logic::Lose(SessionId session, const std::string& why) {
  const std::optional<Worker> worker = fleet_.Close(session);
  if (!worker) return;
  EndUploadsOf(session, worker->name() + " was lost: " + why);
  fleet_changed_ = true;
  actions_.push_back(Note{"worker=" + worker->name(), "was lost: " + why});
  if (worker->measuring) bench_->OnLost(worker->name(), why, now_, actions_);
  Job* job = JobOf(*worker);
  if (job == nullptr) return;
  job->run->OnLost(worker->name(), why, worker->heartbeat.applied());
  Advance(*job, {});
}

Job* Logic::JobOf(const Worker& worker) {
  if (worker.job.empty()) return nullptr;
  Job* job = Find(worker.job.value());
  return job != nullptr && job->run ? job : nullptr;
}

// ---- leaving ------------------------------------------------------------------------------------

void Logic::Leave(Worker& worker, const std::string& reason) {
  worker.leaving = worker.draining = true;
  fleet_changed_ = true;
  if (worker.idle()) return EndLeaving(worker);
  if (worker.measuring) {
    return bench_->Stop(
        {Error(absl::StatusCode::kAborted, "worker {} leaves: {}", worker.name(), OneLine(reason)),
         "BENCH_ABORTED"},
        now_, actions_);
  }
  Job* job = JobOf(worker);
  if (job == nullptr) return;  // it is free soon
  job->run->Leave(worker.name(), reason);
  Advance(*job, {});
}

void Logic::EndLeaving(Worker& worker) {
  const SessionId session = worker.session;
  actions_.push_back(Note{"worker=" + worker.name(), "left"});
  Refuse(session, {absl::OkStatus(), ""});
  EndUploadsOf(session, worker.name() + " left");
  // Its process ends, and the drain was of that one.
  if (fleet_.ForgetDrain(worker.name())) actions_.push_back(SaveDrain{{worker.name(), ""}});
  fleet_.Close(session);
  fleet_changed_ = true;
}

void Logic::On(const DrainAsked& event) {
  Worker* worker = fleet_.Find(event.worker);
  if (worker == nullptr && event.resume && fleet_.ForgetDrain(event.worker)) {
    actions_.push_back(SaveDrain{{event.worker, ""}});
    return Answer({});
  }
  if (worker == nullptr) {
    return Answer({Error(absl::StatusCode::kNotFound,
                         "no worker {} is attached; `ringctl workers` shows those that are",
                         event.worker.substr(0, 100)),
                   "WORKER_NOT_FOUND"});
  }
  if (event.resume && worker->leaving) return Answer({});  // its process ends
  actions_.push_back(SaveDrain{{worker->name(), event.resume ? "" : worker->attach.incarnation()}});
  Answer({}, event.resume ? "" : worker->job.value());
  fleet_.SetDraining(*worker, !event.resume);
  fleet_changed_ = true;
  actions_.push_back(
      Note{"worker=" + worker->name(), event.resume ? "takes jobs again" : "is drained"});
  Job* job = JobOf(*worker);
  if (job == nullptr) return;
  if (event.resume) {
    job->run->Stay(worker->name());
  } else {
    job->run->Leave(worker->name(), "it is drained");
  }
  Advance(*job, {});
}

// The part of Logic that hears what workers say about themselves and their jobs.

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
    case Kind::kJoined:
      return message.joined().job_id();
    case Kind::kStateSaved:
      return message.state_saved().job_id();
    case Kind::kCheckpointsDropped:
      return message.checkpoints_dropped().job_id();
    case Kind::kSnapshotTaken:
      return message.snapshot_taken().job_id();
    default:
      return "";
  }
}

// The step of the newest evaluation; 0: there was none.
uint64_t EvaluatedAt(const google::protobuf::RepeatedPtrField<v1::Metric>& metrics) {
  uint64_t step = 0;
  for (const v1::Metric& metric : metrics) {
    if (metric.split() != v1::SAMPLE_SPLIT_TRAIN) step = std::max(step, metric.step());
  }
  return step;
}

Fault WorkerFailed(const Run& run, const Member& member, const v1::JobFailed& said) {
  return {CauseOfCode(said.code()),
          fmt::format("{} failed {}: {}", member.called(), At(said.step(), run.PhaseOf(member)),
                      said.reason()),
          member.name(), said.step()};
}

}  // namespace

void Logic::On(const WorkerSaid& event) {
  if (!fleet_.IsOpen(event.session)) return;  // closed by us, its last words still on the way
  Worker* worker = fleet_.Find(event.session);
  if (worker == nullptr) {
    if (event.message.has_attach()) return Attach(event.session, event.message.attach());
    return Refuse(event.session, {InvalidArgument("the first message of a session is Attach"),
                                  "PROTOCOL_VIOLATION"});
  }
  worker->last_heard = std::max(worker->last_heard, now_.heard);
  if (Job* job = JobOf(*worker); job != nullptr) job->run->OnHeard(worker->name(), now_);
  switch (event.message.kind_case()) {
    case Kind::kHeartbeat:
      return Hear(*worker, event.message.heartbeat());
    case Kind::kLeaving:
      return Leave(*worker, event.message.leaving().reason());
    case Kind::kRingMeasured:
      if (worker->measuring) {
        bench_->OnMeasured(worker->name(), event.message.ring_measured(), now_, actions_);
      }
      return;
    case Kind::kDeviceReport:
      Fleet::KeepDevices(*worker, event.message.device_report(), now_);
      figures_changed_ = true;
      return;
    case Kind::kAttach:
    case Kind::KIND_NOT_SET:
      Refuse(event.session, {InvalidArgument("a session has one Attach, and no empty messages"),
                             "PROTOCOL_VIOLATION"});
      return Lose(event.session, "it violated the protocol");
    default:
      return HearAboutJob(*worker, event.message);
  }
}

void Logic::Hear(Worker& worker, const v1::Heartbeat& heartbeat) {
  // A heartbeat without job may have crossed the messages that gave and took the job; it surely
  // means "free again" after one with the job, or a while later.
  const bool knew = !worker.heartbeat.job_id().empty();
  if (heartbeat.has_data_fetch() || worker.heartbeat.has_data_fetch()) figures_changed_ = true;
  worker.heartbeat = heartbeat;
  if (worker.releasing && heartbeat.job_id().empty() &&
      (knew || now_.steady - worker.released_at >= options_.settle)) {
    worker.releasing = false;
    fleet_changed_ = true;
    if (worker.leaving) return EndLeaving(worker);
  }
  Job* job = JobOf(worker);
  if (job == nullptr || heartbeat.job_id() != job->record.id()) return;
  if (Member* from = job->run->Find(worker.name()); from != nullptr) {
    job->run->OnHeartbeat(*from, heartbeat, now_);
  }
}

void Logic::HearAboutJob(Worker& worker, const v1::WorkerMessage& message) {
  Job* job = JobOf(worker);
  if (job == nullptr || JobIn(message) != job->record.id()) return;  // of a job that is over
  Run& run = *job->run;
  Member* const member = run.Find(worker.name());
  if (member == nullptr) return;
  Member& from = *member;
  switch (message.kind_case()) {
    case Kind::kInspected:
      return Advance(*job, run.OnInspected(from, message.inspected(), now_, actions_));
    case Kind::kPrepared:
      return Advance(*job, run.OnPrepared(from, message.prepared(), now_));
    case Kind::kFenceAck:
      return Advance(*job, run.OnFenceAck(from, message.fence_ack()));
    case Kind::kProgress: {
      const v1::Progress& said = message.progress();
      const Fault fault = run.OnProgress(from, said, now_);
      // Each evaluation is told, however soon the next one follows.
      if (EvaluatedAt(said.metrics()) > EvaluatedAt(job->record.status.metrics())) {
        job->Hurry();
      }
      if (!fault.ok() || run.unsettled() || job->IsDue()) return Advance(*job, fault);
      return job->Postpone();  // figures alone
    }
    case Kind::kJobFinished:
      return Advance(*job, run.OnFinished(from, message.job_finished(), now_));
    case Kind::kJobFailed:
      return HearFailed(*job, from, message.job_failed());
    case Kind::kSnapshotTaken:
      return HearSnapshot(*job, from, message.snapshot_taken().snapshot(),
                          message.snapshot_taken().held());
    case Kind::kJoined:
      run.OnJoined(from, message.joined(), now_);
      break;
    case Kind::kJobStopped:
      run.OnStopped(from);
      break;
    case Kind::kPhaseEntered:
      run.OnPhase(from, message.phase_entered(), now_);
      break;
    case Kind::kStateSaved:
      run.OnSaved(from, message.state_saved(), now_);
      queue_changed_ = true;  // who came meanwhile may join now
      break;
    case Kind::kCheckpointsDropped:
      run.OnDropped(from, message.checkpoints_dropped());
      break;
    case Kind::kSuspicion:
      run.OnSuspicion(from, message.suspicion(), now_, actions_);
      break;
    default:
      return;
  }
  Advance(*job, {});
}

// What stops a member of the ring would stop every other one, too; a joiner fails for itself.
void Logic::HearFailed(Job& job, const Member& from, const v1::JobFailed& said) {
  Run& run = *job.run;
  if (run.started() && said.code() == v1::FAILURE_CODE_STATE_DIFFERS) {
    return Advance(job, run.OnStateFault(from, said, now_, actions_));
  }
  // A loss that is not finite is so in every generation that computes the step.
  const bool holds = run.IsCurrent(said.generation()) || said.code() == v1::FAILURE_CODE_NOT_FINITE;
  if (!run.started() || (run.InRing(from.name()) && holds)) {
    const bool again = run.started() && run.RestoreAgain(said.reason(), now_, actions_);
    return Advance(job, again ? Fault() : WorkerFailed(run, from, said));
  }
  if (run.InRing(from.name())) return;  // of a generation that is over
  run.RefuseJoiner(from.name(), said.reason(), now_);
  Advance(job, {});
}

}  // namespace ringmaster::coordinator
