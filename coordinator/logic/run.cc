// A run begins, and Settle: what follows from what was said.
#include "coordinator/logic/run.h"

#include <algorithm>
#include <utility>

#include "common/job/resolve.h"

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
  if (resolved_ && resolved_->has_init()) init_ = resolved_->init();
  if (job.status.has_resumed_from()) resumed_from_ = job.status.resumed_from();
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
  Enter(Phase::kInspecting, {}, now);
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
  *newest_.mutable_metrics() = status.metrics();
  newest_.set_learning_rate(status.learning_rate());
  newest_unix_ms_ = status.last_step_unix_ms();
  start_step_ = resumed_from_ ? resumed_from_->step() : 0;
  for (const v1::Regroup& regroup : regroups_) {
    if (FromProto(regroup.generation()) == generation_) start_step_ = regroup.start_step();
  }
  begun_ = now.steady;
  // Also of a job that waited for its last checkpoint.
  if (!ring_.empty()) {
    return Enter(Phase::kAdopting, options_.adopt_limit, now);
  }
  holder_deadline_ = now.steady + options_.adopt_limit;
  Wait(now);
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
      SettleSaving(now, actions);
      return {};
    case Phase::kSearching:
      SettleSearching(now);
      return {};
    case Phase::kStopping:
      if (std::all_of(members_.begin(), members_.end(),
                      [](const Member& m) { return m.stopped; })) {
        phase_ = Phase::kDone;
      }
      return {};
    case Phase::kDone:
      return {};
  }
  return {};
}

Fault Run::OnTick(Now now, Actions& actions) {
  if (phase_ == Phase::kStopping && now.steady >= deadline_) StopWaiting();
  if (started_) EvictFrozen(now);
  may_join_ = true;
  Fault fault = Settle(now, actions);
  may_join_ = false;
  return fault;
}

void Run::StopWaiting() {
  for (const Member& member : members_) {
    if (!member.stopped) unstopped_ += (unstopped_.empty() ? "" : ", ") + member.called();
  }
  phase_ = Phase::kDone;
}

void Run::Excuse(std::chrono::milliseconds late) {
  deadline_ += late;
  readmission_.Excuse(late);
  if (regroup_) regroup_->deadline += late;
  if (holder_deadline_) *holder_deadline_ += late;
  if (all_finished_at_) *all_finished_at_ += late;
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

std::optional<size_t> Run::RankOf(const std::string& worker) const {
  for (size_t rank = 0; rank < ring_.size(); ++rank) {
    if (ring_[rank].name == worker && At(ring_[rank]) != nullptr) return rank;
  }
  return std::nullopt;
}

Run::OtherHolder Run::FindOtherHolder(const std::string& writer, uint64_t step) const {
  if (phase_ == Phase::kFencing || phase_ == Phase::kAdopting) {
    return {"", "the ring is being formed"};
  }
  if (phase_ != Phase::kRunning) {
    // What somebody holds it told before it acknowledged.
    const auto owes = std::find_if(members_.begin(), members_.end(), [&](const Member& m) {
      return m.role == Role::kReady && m.owes && m.name() != writer;
    });
    return owes == members_.end() ? OtherHolder() : OtherHolder{owes->name(), ""};
  }
  // Its first two take it; a snapshot from before this generation was told.
  if (step < start_step_ || ring_.size() < 2) return {};
  return {ring_[ring_[0].name == writer ? 1 : 0].name, ""};
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
