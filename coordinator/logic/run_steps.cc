// While the ring runs: what its members report, and what makes it regroup.
#include <algorithm>
#include <utility>

#include "common/planted_bug.h"
#include "coordinator/logic/agreement.h"
#include "coordinator/logic/run.h"

namespace ringmaster::coordinator {
namespace {

constexpr size_t kMaxDigests = 64;  // members are never further apart than one step
constexpr size_t kDigestBytes = 64;
constexpr size_t kMaxPhaseBytes = 32;

Fault Violation(const Member& member, const std::string& what) {
  return {Cause::kProtocolViolation, member.called() + " " + what, member.name()};
}

}  // namespace

// ---- what makes it regroup ----------------------------------------------------------------------

// A member of the ring that is gone or silent, as a sentence.
std::optional<std::string> Run::FindLost(Now now) {
  std::optional<std::string> lost;
  for (const Place& place : ring_) {
    Member* member = At(place);
    if (member == nullptr) {
      if (!lost) lost = last_loss_;
      continue;
    }
    if (!Silent(*member, now) || !(member->owes || phase_ == Phase::kRunning)) continue;
    if (!member->lost_told) {
      member->lost_told = true;
      last_loss_ =
          fmt::format("{} was lost {}: it was silent for {} ms", member->called(),
                      coordinator::At(std::max(committed_, member->applied), PhaseOf(*member)),
                      member->silent_for(now).count());
      Tell(event_type::kWorkerLost, Severity::kWarning, last_loss_, place.name);
    }
    if (!lost) lost = last_loss_;
  }
  return lost;
}

// A member whose run has ended although it should go on: it was fenced by a coordinator that died,
// or its report was lost.
std::optional<std::string> Run::FindIdle(Now now) const {
  for (const Place& place : ring_) {
    const Member* member = At(place);
    if (member == nullptr || !member->joined || member->finished || !member->idle_since) continue;
    if (now.steady - *member->idle_since < options_.idle_limit) continue;
    return fmt::format("{} is in the ring and has run nothing for {} ms", member->called(),
                       (now.steady - *member->idle_since).count());
  }
  return std::nullopt;
}

// A store that was restored from an older copy does not know a checkpoint that was delivered: the
// ring is asked once to deliver it again.
bool Run::LacksLastCheckpoint(Now now) {
  const bool all = std::all_of(ring_.begin(), ring_.end(), [&](const Place& place) {
    const Member* member = At(place);
    return member != nullptr && member->finished.has_value();
  });
  if (!all || last_manifest_ || asked_again_) return false;
  if (!all_finished_at_) all_finished_at_ = now.steady;
  asked_again_ = now.steady - *all_finished_at_ >= options_.idle_limit;
  return asked_again_;
}

// A fence at a boundary waits for a step that cannot end.
bool Run::FenceAtOnce(Now now, Actions& actions) {
  const std::optional<std::string> lost = FindLost(now);
  if (!lost && now.steady < regroup_->deadline) return false;
  BeginFence(FenceWhen::kNow, lost.value_or(""), now, actions);
  return true;
}

Fault Run::SettleRunning(Now now, Actions& actions) {
  if (Fault fault = CheckEnd(); !fault.ok() || phase_ == Phase::kDone) return fault;
  if (const std::optional<std::string> lost = FindLost(now)) {
    BeginFence(FenceWhen::kNow, *lost, now, actions);
  } else if (LacksLastCheckpoint(now)) {
    BeginFence(FenceWhen::kNow, "every member finished, but the last checkpoint is not known here",
               now, actions);
  } else if (const std::optional<std::string> idle = FindIdle(now)) {
    BeginFence(FenceWhen::kNow, *idle, now, actions);
  } else {
    RegroupComers(now, actions);
  }
  return {};
}

void Run::RegroupComers(Now now, Actions& actions) {
  std::string leaves, joins;
  std::vector<std::string> idle;  // leave, and are in no ring
  for (const Member& member : members_) {
    if (InRing(member.name())) {
      if (member.leaving) leaves += (leaves.empty() ? "" : ", ") + member.name();
    } else if (member.leaving) {
      idle.push_back(member.name());
    } else if (may_join_ && !AnyFinished() && Eligible(member, now)) {
      joins += (joins.empty() ? "" : ", ") + member.name();
    }
  }
  for (const std::string& name : idle) LetGo(name, false, "it leaves");
  const bool full = ring_.size() >= most_;
  if (full) {
    std::vector<std::string> spare;
    for (const Member& member : members_) {
      if (!InRing(member.name()) && Eligible(member, now)) spare.push_back(member.name());
    }
    if (leaves.empty()) {
      for (const std::string& name : spare) LetGo(name, false, "the job has all its workers");
      return;
    }
  }
  if (leaves.empty() && joins.empty()) return;
  std::string reason = leaves.empty() ? "" : leaves + " leaves";
  if (!joins.empty()) reason += (reason.empty() ? "" : ", ") + joins + " joins";
  BeginFence(FenceWhen::kAtBoundary, reason, now, actions);
}

void Run::OnSuspicion(Member& from, const v1::Suspicion& said, Now now, Actions& actions) {
  if (!IsCurrent(said.generation()) || !InRing(from.name())) return;
  if (RING_PLANTED(kIgnoresSuspicions)) return;
  const Member* peer = Find(said.peer());
  const std::string who = said.peer().empty() ? "a neighbour"
                          : peer == nullptr   ? Called(said.peer(), "")
                                              : peer->called();
  const std::string reason = fmt::format(
      "{} suspects {} {}: {}", from.called(), who,
      coordinator::At(said.step(), peer == nullptr ? "" : PhaseOf(*peer)), said.reason());
  if (phase_ == Phase::kAdopting) {
    deadline_ = std::min(deadline_, now.steady + options_.settle);
  } else if (phase_ == Phase::kRunning) {
    if (peer != nullptr && peer != &from) accusation_ = Accusation{from.name(), peer->name()};
    BeginFence(FenceWhen::kNow, reason, now, actions);
  } else if (phase_ == Phase::kFencing && regroup_->when == FenceWhen::kAtBoundary) {
    // A member that stopped at the boundary has ended its link: that is no loss.
    if (peer == nullptr || peer->owes) BeginFence(FenceWhen::kNow, reason, now, actions);
  }
}

void Run::EvictFrozen(Now now) {
  if (phase_ != Phase::kRunning && phase_ != Phase::kFencing) return;
  std::vector<std::pair<std::string, std::string>> frozen;
  for (const Member& member : members_) {
    if (!InRing(member.name()) || member.finished) continue;
    if (phase_ == Phase::kFencing && !member.owes) continue;
    const auto still = member.watch.Frozen(options_.stall_limit, now);
    if (!still) continue;
    frozen.emplace_back(
        member.name(),
        fmt::format("it lives, but its work in {} has stood still for {:.1f} s",
                    member.watch.phase(), std::chrono::duration<double>(*still).count()));
  }
  // All at once: what they wait for is not one of them.
  if (frozen.size() == ring_.size() && ring_.size() > 1) return;
  for (const auto& [name, why] : frozen) Evict(name, why, now);
}

// ---- what members say ---------------------------------------------------------------------------

void Run::OnHeard(const std::string& worker, Now now) {
  if (Member* member = Find(worker); member != nullptr) member->last_heard = now.steady;
}

Fault Run::OnProgress(Member& from, const v1::Progress& said, Now now) {
  const bool runs =
      phase_ == Phase::kRunning || phase_ == Phase::kFencing || phase_ == Phase::kAdopting;
  if (!runs || !IsCurrent(said.generation()) || !InRing(from.name())) return {};
  if (Fault fault = CheckDigest(from, said.applied(), said.digest()); !fault.ok()) return fault;
  if (said.applied() > from.applied) {
    OnHeartbeat(from, {}, now);
    phases_.Finish(from.name(), now);
  }
  from.progress = said;
  from.applied = std::max(from.applied, said.applied());
  if (said.applied() > newest_.applied()) newest_unix_ms_ = now.unix_ms;
  if (said.applied() >= newest_.applied()) newest_ = said;
  RaiseCommitted();
  return {};
}

void Run::RaiseCommitted() {
  const Member* lowest = nullptr;
  for (const Place& place : ring_) {
    const Member* member = At(place);
    if (member == nullptr) return;
    if (lowest == nullptr || member->applied < lowest->applied) lowest = member;
  }
  if (lowest == nullptr) return;
  committed_ = std::max(committed_, lowest->applied);
  const v1::Progress& progress = lowest->progress;
  if (progress.updates() > progress.applied() || progress.applied() != lowest->applied) return;
  skipped_ = std::max(
      skipped_, progress.has_loss_scale() ? progress.applied() - progress.updates() : uint64_t{0});
}

bool Run::AnyFinished() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const Member& m) { return m.finished.has_value(); });
}

void Run::OnHeartbeat(Member& from, const v1::Heartbeat& said, Now now) {
  const bool worked = said.job_id().empty() || said.progress() != from.work;
  if (!said.job_id().empty()) {
    from.work = said.progress();
    from.phase = said.phase().substr(0, kMaxPhaseBytes);
    from.watch.Observe(from.phase, from.work, now);
    if (from.phase != "idle") {
      from.idle_since.reset();
    } else if (!from.idle_since) {
      from.idle_since = now.steady;
    }
  }
  if (worked && phase_ == Phase::kRunning && !AnyFinished()) {
    deadline_ = now.steady + limit_;
  }
}

Fault Run::OnFinished(Member& from, const v1::JobFinished& said, Now now) {
  if (!IsCurrent(said.generation())) return {};
  if (phase_ == Phase::kStopping) OnStopped(from);
  if ((phase_ != Phase::kRunning && phase_ != Phase::kAdopting) || !InRing(from.name())) return {};
  if (Fault fault = CheckDigest(from, said.applied(), said.digest()); !fault.ok()) return fault;
  const uint64_t total = resolved_->result().total_steps();
  if (said.applied() != total) {
    return Violation(from, fmt::format("says that it finished at step {}, but the job has {} steps",
                                       said.applied(), total));
  }
  if (phase_ == Phase::kRunning && !AnyFinished()) {
    Enter(Phase::kRunning, options_.finish_limit, now);
  }
  from.finished = said;
  phases_.Finish(from.name(), now);
  // Its last steps were not skipped, as far as is known: a last Progress said so before this.
  from.progress.set_updates(from.progress.updates() + total - from.progress.applied());
  from.progress.set_applied(total);
  from.applied = total;
  RaiseCommitted();
  return {};
}

void Run::OnStopped(Member& from) {
  if (phase_ == Phase::kStopping) from.stopped = true;
}

void Run::OnCheckpoint(const v1::CheckpointRef& ref, const std::string& digest, Actions& actions) {
  kept_step_ = std::max(kept_step_, ref.step());
  // The one that was found may go now.
  if (restore_ && restore_->found && restore_->found->ref.step() < ref.step()) restore_.reset();
  v1::CoordinatorMessage message;
  message.mutable_checkpoint_kept()->set_job_id(job_id_);
  message.mutable_checkpoint_kept()->set_step(ref.step());
  for (const Member& member : members_) {
    if (member.role == Role::kReady) Send(member, message, actions);
  }
  if (!resolved_ || ref.step() != resolved_->result().total_steps()) return;
  last_manifest_ = ref.sha256();
  last_digest_ = digest;
}

// The job is done when every member finished with the state that the last checkpoint holds.
Fault Run::CheckEnd() {
  if (RING_PLANTED(kSucceedsWithoutCheckpoint) && AnyFinished()) phase_ = Phase::kDone;
  if (!last_manifest_) return {};
  for (const Place& place : ring_) {
    const Member* member = At(place);
    if (member == nullptr || !member->finished) return {};
  }
  for (const Place& place : ring_) {
    const Member& member = *At(place);
    const v1::JobFinished& end = *member.finished;
    if (!last_digest_.empty() && HexOf(end.digest()) != last_digest_) {
      return {Cause::kCheckpointDiffers,
              fmt::format("the last checkpoint holds the state with digest {}, {} ends with {}",
                          last_digest_, member.called(), HexOf(end.digest())),
              member.name()};
    }
    if (!end.manifest_sha256().empty() && end.manifest_sha256() != *last_manifest_) {
      return {Cause::kCheckpointDiffers,
              fmt::format("{} wrote a last checkpoint with manifest {}, but {} arrived",
                          member.called(), end.manifest_sha256(), *last_manifest_),
              member.name()};
    }
  }
  phase_ = Phase::kDone;
  return {};
}

Fault Run::CheckDigest(const Member& from, uint64_t step, const std::string& digest) {
  if (digest.size() > kDigestBytes) {
    return Violation(from, fmt::format("sent a digest of {} bytes", digest.size()));
  }
  const auto [seen, fresh] = digests_.try_emplace(step, Witness{from.name(), digest});
  if (!fresh) {
    return FaultOf(
        Cause::kStateDiffers,
        SameDigest(step, {seen->second.worker, seen->second.digest}, {from.name(), digest}));
  }
  if (digests_.size() > kMaxDigests) digests_.erase(digests_.begin());
  return {};
}

}  // namespace ringmaster::coordinator
