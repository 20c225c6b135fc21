// The part of Logic that hears what workers say about themselves and their jobs.
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

Fault WorkerFailed(const Run& run, const Member& member, const v1::JobFailed& said) {
  return {CauseOfError(said.reason()),
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
  worker->last_heard = now_.steady;
  if (Job* job = JobOf(*worker); job != nullptr) job->run->OnHeard(worker->name(), now_);
  switch (event.message.kind_case()) {
    case Kind::kHeartbeat:
      return Hear(*worker, event.message.heartbeat());
    case Kind::kLeaving:
      return Leave(*worker, event.message.leaving().reason());
    case Kind::kDeviceReport:
      Fleet::KeepDevices(*worker, event.message.device_report());
      devices_changed_ = true;
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
    case Kind::kProgress:
      return Advance(*job, run.OnProgress(from, message.progress(), now_));
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
  if (!run.started() || (run.InRing(from.name()) && run.IsCurrent(said.generation()))) {
    const bool again = run.started() && run.RestoreAgain(said.reason(), now_, actions_);
    return Advance(job, again ? Fault() : WorkerFailed(run, from, said));
  }
  if (run.InRing(from.name())) return;  // of a generation that is over
  run.RefuseJoiner(from.name(), said.reason(), now_);
  Advance(job, {});
}

}  // namespace ringmaster::coordinator
