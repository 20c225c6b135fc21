// The part of Logic that knows who is attached: workers come, are lost, leave and are drained.
#include <algorithm>
#include <utility>

#include "common/planted_bug.h"
#include "coordinator/logic/logic.h"

namespace ringmaster::coordinator {
namespace {

// How far a worker's highest term may be above this reign's; fleet.proto says why.
constexpr uint64_t kMaxTermLead = uint64_t{1} << 24;

Refusal CheckTerm(const v1::Attach& attach, uint64_t term) {
  const uint64_t most = term + std::min(kMaxTermLead, kMaxTerm - 1 - std::min(term, kMaxTerm - 1));
  if (attach.highest_term() <= most) return {};
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

void Logic::TakeBack(Worker& worker) {
  const v1::Attach& attach = worker.attach;
  Job* job = Find(attach.job_id());
  const bool resume = job != nullptr && job->run && job->run->MayReturn(attach);
  v1::Attached attached;
  attached.set_term(generations_.term());
  obeyed_.insert(attach.name());
  attached.set_heartbeat_ms(static_cast<uint32_t>(options_.heartbeat.count()));
  attached.set_resume(resume);
  actions_.push_back(Admit{worker.session, attach.name(), attached});
  actions_.push_back(Note{"worker=" + attach.name(),
                          fmt::format("attached with {} core{} at {}", attach.cores(),
                                      attach.cores() == 1 ? "" : "s", attach.ring_address())});
  worker.heartbeat.set_job_id(attach.job_id());
  for (auto& [number, other] : jobs_) {
    if (!other.run || (resume && &other == job)) continue;
    other.run->OnStranger(attach, now_);
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
  Job* job = JobOf(*worker);
  if (job == nullptr) return;
  job->run->OnLost(worker->name(), why, worker->heartbeat.applied());
  Advance(*job, {});
}

Logic::Job* Logic::JobOf(const Worker& worker) {
  if (worker.job.empty()) return nullptr;
  Job* job = Find(worker.job.value());
  return job != nullptr && job->run ? job : nullptr;
}

// ---- leaving ------------------------------------------------------------------------------------

void Logic::Leave(Worker& worker, const std::string& reason) {
  worker.leaving = worker.draining = true;
  fleet_changed_ = true;
  if (worker.idle()) return EndLeaving(worker);
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

}  // namespace ringmaster::coordinator
