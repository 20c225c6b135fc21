// Who comes and who goes, and Settle: what follows from it.
#include "coordinator/logic/run.h"

#include <algorithm>
#include <utility>

#include "common/job/resolve.h"
#include "common/planted_bug.h"

namespace ringmaster::coordinator {
namespace {

constexpr int kMaxPhaseChanges = 16;  // that one event can cause

}  // namespace

Run::Run(const Options& options, GenerationSource& generations, const JobRecord& job)
    : options_(options),
      generations_(generations),
      job_id_(job.id()),
      spec_(job.status.spec()),
      shards_(job::ShardsOf(spec_)),
      min_(job::WorkersOf(spec_).min()),
      most_(std::min(job::WorkersOf(spec_).max(), shards_)),
      resumes_(!job.status.resumes_job().empty()),
      resolved_(job.resolved),
      regroups_(job.status.regroups().begin(), job.status.regroups().end()),
      regroup_count_(job.status.regroup_count()),
      recomputed_(job.status.shards_recomputed()) {
  if (job.status.has_resumed_from()) resumed_from_ = job.status.resumed_from();
}

Member& Run::Add(const Worker& worker, Role role, Now now) {
  Member& member = members_.emplace_back();
  member.attach = worker.attach;
  member.session = worker.session;
  member.role = role;
  member.since = now.steady;
  member.last_heard = now.steady;
  member.leaving = worker.draining;
  return member;
}

void Run::Begin(const std::vector<const Worker*>& workers, Now now, Actions& actions) {
  std::vector<std::string> names;
  for (const Worker* worker : workers) {
    Add(*worker, Role::kInspecting, now);
    names.push_back(worker->name());
  }
  phases_ = StartPhases(names);
  begun_ = now.steady;
  for (const Member& member : members_) SendInspect(member, actions);
  Enter(Phase::kInspecting, options_.prepare_limit, now);
}

void Run::Join(const Worker& worker, Now now, Actions& actions) {
  SendInspect(Add(worker, Role::kInspecting, now), actions);
}

void Run::Adopt(const JobRecord& job, Now now) {
  const v1::JobStatus& status = job.status;
  started_ = true;
  generation_ = FromProto(status.generation());
  state_ = status.state();
  for (const v1::JobWorker& worker : status.workers()) {
    lost_holders_[worker.name()] = "";
    if (worker.shards().empty()) continue;  // it was about to join, or waited
    ring_.push_back(
        {worker.name(), "", worker.host(), {worker.shards().begin(), worker.shards().end()}});
  }
  committed_ = std::max(status.step(), status.checkpoint().step());
  kept_step_ = status.checkpoint().step();
  skipped_ = status.step() - std::min(status.step(), status.updates());
  newest_.set_applied(committed_);
  newest_.set_epoch(status.epoch());
  newest_.set_loss(status.loss());
  newest_.set_accuracy(status.accuracy());
  newest_.set_learning_rate(status.learning_rate());
  newest_unix_ms_ = status.last_step_unix_ms();
  begun_ = now.steady;
  if (status.state() == v1::JOB_STATE_RUNNING && !ring_.empty()) {
    return Enter(Phase::kAdopting, options_.adopt_limit, now);
  }
  holder_deadline_ = now.steady + options_.adopt_limit;
  Wait(now);
}

bool Run::MayReturn(const v1::Attach& attach) const {
  if (!started_ || phase_ == Phase::kStopping || phase_ == Phase::kDone) return false;
  if (attach.known_shard_sha256_size() != static_cast<int>(attach.cores())) return false;
  const auto& known = attach.known_shard_sha256();
  return std::all_of(known.begin(), known.end(), [&](const std::string& core) {
    return core == resolved_->known_shard().sha256();
  });
}

void Run::Return(const Worker& worker, Now now, Actions& actions) {
  const v1::Attach& attach = worker.attach;
  Member& member = Add(worker, Role::kReady, now);
  member.holding = {FromProto(attach.generation()), attach.applied(), attach.digest(), {}, false};
  member.applied = attach.applied();
  lost_holders_.erase(attach.name());
  if (phase_ == Phase::kAdopting) {
    for (Place& place : ring_) {
      if (place.name == member.name()) place.incarnation = member.incarnation();
    }
    member.fence = generation_;
    if (InRing(member.name()) && member.holding.started != generation_) {
      deadline_ = std::min(deadline_, now.steady + options_.settle);
    }
    return;
  }
  // It may still run an old generation, and shows that it lives by acknowledging a fence: the one
  // that is under way, or one of its own.
  Tell(event_type::kWorkerReturned, Severity::kInfo,
       fmt::format("{} attached again, with the state of step {}", member.called(),
                   attach.applied()),
       attach.name());
  if (phase_ == Phase::kFencing) {
    if (InRing(member.name()) && !Barred(attach, now)) regroup_->asked.insert(member.name());
    SendFence(member, regroup_->generation, regroup_->when, actions);
  } else {
    SendFence(member, generations_.Next(), FenceWhen::kNow, actions);
  }
}

void Run::OnStranger(const v1::Attach& attach, Now now) {
  const auto holder = lost_holders_.find(attach.name());
  if (holder == lost_holders_.end()) return;
  lost_holders_.erase(holder);
  if (phase_ != Phase::kAdopting) return;
  deadline_ = std::min(deadline_, now.steady + options_.settle);
}

void Run::OnLost(const std::string& worker, const std::string& why, uint64_t applied) {
  const Member* member = Find(worker);
  if (member == nullptr) return;
  if (phase_ == Phase::kStopping) return Remove(worker);
  const uint64_t step = std::max({applied, committed_, member->applied});
  last_loss_ = fmt::format("{} was lost {}: {}", member->called(),
                           coordinator::At(step, PhaseOf(*member)), why);
  if (!member->lost_told) {
    Tell(event_type::kWorkerLost, Severity::kWarning, last_loss_, worker);
  }
  Remove(worker);
}

void Run::Remove(std::string worker) {
  const Member* member = Find(worker);
  if (member == nullptr) return;
  const uint64_t has = std::max(member->holding.applied, member->applied);
  if (started_ && member->role == Role::kReady && has >= committed_) {
    lost_holders_[worker] = member->incarnation();
  }
  phases_.Remove(worker);
  std::erase_if(members_, [&](const Member& m) { return m.name() == worker; });
}

// By value: it may be the name inside what is removed.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Run::LetGo(std::string worker, bool evicted, const std::string& reason) {
  const Member* member = Find(worker);
  if (member == nullptr) return;
  if (!RING_PLANTED(kForgetsRelease)) departures_.push_back({member->session, evicted, reason});
  Remove(worker);
  if (!evicted) lost_holders_.erase(worker);  // it drops what it has
}

// By value: it may be the name inside what is removed.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Run::Evict(std::string worker, const std::string& why, Now now) {
  const Member* member = Find(worker);
  if (member == nullptr) return;
  const auto bar = readmission_.Bar(worker, member->incarnation(), now);
  last_loss_ = fmt::format("{} was left out {}: {}; it may join again after {}", member->called(),
                           coordinator::At(committed_, PhaseOf(*member)), why,
                           FormatSeconds(std::chrono::duration<double>(bar).count()));
  Tell(event_type::kWorkerLost, Severity::kWarning, last_loss_, worker);
  suspicions_.Forget(worker);
  LetGo(worker, true, why);
}

// By value: it may be the name inside what is removed.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Run::RefuseJoiner(std::string worker, const std::string& why, Now now) {
  const Member* member = Find(worker);
  if (member == nullptr) return;
  const auto bar = readmission_.Bar(worker, member->incarnation(), now);
  Tell(event_type::kWorkerRefused, Severity::kWarning,
       fmt::format("{} cannot take part: {}; it is tried again after {}", member->called(), why,
                   FormatSeconds(std::chrono::duration<double>(bar).count())),
       worker);
  LetGo(worker, false, why);
}

void Run::Leave(const std::string& worker, const std::string& why) {
  Member* member = Find(worker);
  if (member == nullptr || member->leaving) return;
  member->leaving = true;
  if (started_) return;  // at a boundary
  last_loss_ = fmt::format("{} left: {}", member->called(), why);
  Tell(event_type::kWorkerLeft, Severity::kInfo, last_loss_, worker);
  LetGo(worker, false, why);
}

void Run::Stay(const std::string& worker) {
  Member* member = Find(worker);
  if (member != nullptr) member->leaving = false;
}

void Run::Stop(const std::string& reason, Now now, Actions& actions) {
  v1::CoordinatorMessage message;
  message.mutable_cancel()->set_job_id(job_id_);
  message.mutable_cancel()->set_reason(reason);
  SendAll(message, actions);
  regroup_.reset();
  Enter(Phase::kStopping, options_.stop_limit, now);
}

// ---- what follows -------------------------------------------------------------------------------

Fault Run::Settle(Now now, Actions& actions) {
  for (int i = 0; i < kMaxPhaseChanges; ++i) {
    const Phase before = phase_;
    if (Fault fault = SettleOnce(now, actions); !fault.ok()) return fault;
    if (phase_ == before) break;
  }
  return {};
}

Fault Run::SettleOnce(Now now, Actions& actions) {
  switch (phase_) {
    case Phase::kInspecting:
      return SettleInspecting(now, actions);
    case Phase::kPreparing:
      return SettlePreparing(now, actions);
    case Phase::kFencing:
      if (regroup_->when == FenceWhen::kAtBoundary && FenceAtOnce(now, actions)) return {};
      return FenceOver(now) ? Conclude(now, actions) : Fault();
    case Phase::kRunning:
      return SettleRunning(now, actions);
    case Phase::kWaiting:
      return SettleWaiting(now, actions);
    case Phase::kAdopting:
      SettleAdopting(now, actions);
      return {};
    case Phase::kSaving:
      if (Find(saver_) == nullptr) Wait(now);  // it is lost
      return {};
    case Phase::kStopping:
      if (std::all_of(members_.begin(), members_.end(),
                      [](const Member& m) { return m.stopped; })) {
        phase_ = Phase::kDone;
      }
      return {};
    case Phase::kSearching:
    case Phase::kDone:
      return {};
  }
  return {};
}

Fault Run::OnTick(Now now, Actions& actions) {
  if (Fault late = CheckDeadline(now); !late.ok()) return late;
  if (phase_ == Phase::kSaving && now.steady >= deadline_) GiveUpSaving(now);
  if (started_) CheckJoiners(now);
  if (started_) EvictFrozen(now);
  may_join_ = true;
  Fault fault = Settle(now, actions);
  may_join_ = false;
  return fault;
}

void Run::Excuse(std::chrono::milliseconds late) {
  deadline_ += late;
  readmission_.Excuse(late);
  if (regroup_) regroup_->deadline += late;
  if (holder_deadline_) *holder_deadline_ += late;
  for (Member& member : members_) {
    member.last_heard += late;
    member.since += late;
    member.watch.Excuse(late);
    if (member.idle_since) *member.idle_since += late;
  }
}

void Run::Enter(Phase phase, std::chrono::milliseconds limit, Now now) {
  phase_ = phase;
  limit_ = limit;
  deadline_ = now.steady + limit;
}

// ---- small things -------------------------------------------------------------------------------

const Member* Run::Find(const std::string& worker) const {
  const auto found = std::find_if(members_.begin(), members_.end(),
                                  [&](const Member& m) { return m.name() == worker; });
  return found == members_.end() ? nullptr : &*found;
}

Member* Run::Find(const std::string& worker) {
  return const_cast<Member*>(std::as_const(*this).Find(worker));
}

const Member* Run::At(const Place& place) const {
  const Member* member = Find(place.name);
  return member != nullptr && member->incarnation() == place.incarnation ? member : nullptr;
}

Member* Run::At(const Place& place) { return const_cast<Member*>(std::as_const(*this).At(place)); }

bool Run::InRing(const std::string& worker) const {
  return std::any_of(ring_.begin(), ring_.end(), [&](const Place& place) {
    return place.name == worker && At(place) != nullptr;
  });
}

size_t Run::room() const {
  const bool open = phase_ == Phase::kFencing || phase_ == Phase::kRunning ||
                    phase_ == Phase::kWaiting || phase_ == Phase::kSearching;
  if (!open || !started_ || AnyFinished()) return 0;
  const auto stays = static_cast<size_t>(
      std::count_if(members_.begin(), members_.end(), [](const Member& m) { return !m.leaving; }));
  return most_ - std::min(most_, stays);
}

std::vector<Departure> Run::TakeDepartures() { return std::exchange(departures_, {}); }
std::vector<Happening> Run::TakeHappenings() { return std::exchange(told_, {}); }
bool Run::TakeSearch() { return std::exchange(search_, false); }

void Run::Tell(const char* type, Severity severity, std::string message,
               const std::string& subject) {
  told_.push_back({type, severity, std::move(message), subject});
}

void Run::Send(const Member& member, const v1::CoordinatorMessage& message,
               Actions& actions) const {
  actions.push_back(coordinator::Send{member.session, message});
}

void Run::SendAll(const v1::CoordinatorMessage& message, Actions& actions) const {
  for (const Member& member : members_) Send(member, message, actions);
}

}  // namespace ringmaster::coordinator
