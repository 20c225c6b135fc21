// While the ring runs: what makes it regroup.
#include <algorithm>
#include <utility>

#include "common/planted_bug.h"
#include "coordinator/logic/run/run.h"

namespace ringmaster::coordinator {

// A member of the ring that is gone or silent, as a sentence.
std::optional<std::string> Run::FindLost(Now now) {
  std::optional<std::string> lost;
  for (const Place& place : members_.ring()) {
    Member* member = At(place);
    if (member == nullptr) {
      if (!lost) lost = last_loss_;
      continue;
    }
    if (!fence_.Silent(*member, now) || !(member->owes || phase_ == Phase::kRunning)) continue;
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
  for (const Place& place : members_.ring()) {
    const Member* member = At(place);
    if (member == nullptr || !member->joined || member->finished || !member->idle_since) continue;
    if (now.steady - *member->idle_since < options_.idle_limit) continue;
    return fmt::format("{} is in the ring and has run nothing for {} ms", member->called(),
                       (now.steady - *member->idle_since).count());
  }
  return std::nullopt;
}

// A store that was restored from an older copy does not know a checkpoint that was delivered: the
// ring is asked to deliver it again, until it is there.
bool Run::LacksLastCheckpoint(Now now) {
  const bool all =
      std::all_of(members_.ring().begin(), members_.ring().end(), [&](const Place& place) {
        const Member* member = At(place);
        return member != nullptr && member->finished.has_value();
      });
  if (!all || custody_.HasLast(EndStep())) return false;
  if (!all_finished_at_) all_finished_at_ = now.steady;
  if (now.steady - *all_finished_at_ < std::max(finish_pause_, options_.ask_again)) return false;
  finish_pause_ = std::clamp(2 * finish_pause_, options_.ask_again, options_.ask_again_most);
  return true;
}

// Every step is applied, and the job has not ended: nothing of it is lost by waiting.
void Run::ShowFinishing(Now now) {
  if (!AnyFinished() || now.steady < deadline_) return;
  std::string names;
  for (const Place& place : members_.ring()) {
    const Member* member = At(place);
    if (member == nullptr || member->finished) continue;
    names += (names.empty() ? "" : ", ") + member->called();
    if (const std::string phase = PhaseOf(*member); !phase.empty()) names += " (in " + phase + ")";
  }
  state_ = v1::JOB_STATE_WAITING;
  reason_ = fmt::format(
      "every step is applied, but the last checkpoint, of step {}, is not stored "
      "yet: {}; its workers keep the state, and it ends by itself",
      committed_, names.empty() ? "its workers are asked for it again" : "waits for " + names);
}

// A fence at a boundary waits for a step that cannot end.
bool Run::FenceAtOnce(Now now, Actions& actions) {
  const std::optional<std::string> lost = FindLost(now);
  if (!lost && !fence_.Overdue(now)) return false;
  BeginFence(FenceWhen::kNow, lost.value_or("the step in hand does not end"), now, actions);
  return true;
}

Fault Run::StepRunning(Now now, Actions& actions) {
  if (Fault fault = CheckEnd(now); !fault.ok() || phase_ == Phase::kDone) return fault;
  const bool late = AnyFinished() && now.steady >= deadline_ + 2 * options_.stall_limit;
  if (late && RING_PLANTED(kFailsAtTheEnd)) return {Cause::kNoCheckpoint, "the end took too long"};
  if (const std::optional<std::string> lost = FindLost(now)) {
    BeginFence(FenceWhen::kNow, *lost, now, actions);
  } else if (LacksLastCheckpoint(now)) {
    BeginFence(FenceWhen::kNow, "every member finished, but the last checkpoint is not known here",
               now, actions);
  } else if (!AnyFinished() && now.steady >= deadline_) {
    BeginFence(FenceWhen::kNow,
               fmt::format("no worker finished any work for {} ms", limit_.count()), now, actions);
  } else if (const std::optional<std::string> idle = FindIdle(now)) {
    BeginFence(FenceWhen::kNow, *idle, now, actions);
  } else if (NextMapBegins()) {
    BeginFence(FenceWhen::kAtBoundary, "the next class map begins", now, actions);
  } else if (const std::string balance = FindBalance(now); !balance.empty()) {
    BeginFence(FenceWhen::kAtBoundary, balance, now, actions);
  } else {
    ShowFinishing(now);
    RegroupComers(now, actions);
  }
  return {};
}

bool Run::RingJoined() const {
  return std::all_of(members_.ring().begin(), members_.ring().end(), [&](const Place& place) {
    const Member* member = At(place);
    return member != nullptr && (member->joined || member->finished);
  });
}

void Run::RegroupComers(Now now, Actions& actions) {
  std::string leaves, joins;
  std::vector<std::string> idle;  // leave, and are in no ring
  for (const Member& member : members_) {
    if (InRing(member.name())) {
      if (member.leaving) leaves += (leaves.empty() ? "" : ", ") + member.name();
    } else if (member.leaving) {
      idle.push_back(member.name());
    } else if (ticks_ && !AnyFinished() && Eligible(member, now)) {
      joins += (joins.empty() ? "" : ", ") + member.name();
    }
  }
  for (const std::string& name : idle) LetGo(name, false, "it leaves");
  // A ring that is being connected has no boundary at which all of it could end.
  if (!RingJoined()) return;
  const bool full = members_.ring().size() >= most_;
  if (full) {
    std::vector<std::string> spare;
    for (const Member& member : members_) {
      if (!InRing(member.name()) && Eligible(member, now)) spare.push_back(member.name());
    }
    bool newer = false;  // one came back with a state that the ring has gone back from
    if (leaves.empty()) {
      for (const std::string& name : spare) {
        const bool has = Find(name)->holding.applied > report_.newest_step();
        newer = newer || has;
        if (!has) LetGo(name, false, "the job has all its workers");
      }
      if (!newer) return;
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
    return;
  }
  const bool at_boundary = fence_.at_boundary();
  // A member that stopped at the boundary has ended its link: that is no loss.
  const bool left = at_boundary && peer != nullptr && !peer->owes;
  if ((phase_ != Phase::kRunning && !at_boundary) || left) return;
  if (peer != nullptr && peer != &from) fence_.Accuse(from.name(), peer->name());
  BeginFence(FenceWhen::kNow, reason, now, actions);
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
  if (frozen.size() == members_.ring().size() && members_.ring().size() > 1) return;
  for (const auto& [name, why] : frozen) Evict(name, why, now);
}

}  // namespace ringmaster::coordinator
