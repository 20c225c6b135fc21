// States that are not what they should be: a worker whose own state is not what it wrote, or whose
// digest is not that of the others. It is named and leaves the run; what may be made of its wrong
// bits goes, and the job goes back to the newest state that every member had reported. The second
// time in a job it fails.
//
// A worker looks at S(k) when it applies step k, and its gradients of that step may already be
// wrong: so states after k are spoilt on whoever has them, and those up to k are not. No checkpoint
// of a later step counts before every member said that it applied that step (FindBehind).
#include <algorithm>
#include <utility>

#include "coordinator/logic/run/run.h"

namespace ringmaster::coordinator {
namespace {

constexpr uint32_t kMostStateFaults = 1;  // that a job survives

}  // namespace

std::string Run::FindBehind(const std::string& writer, uint64_t step,
                            const std::vector<SnapshotReport>& told) const {
  const bool runs =
      phase_ == Phase::kRunning || phase_ == Phase::kFencing || phase_ == Phase::kAdopting;
  // Holders of the state that a generation begins with acknowledged it.
  if (!runs || step <= start_step_) return "";
  for (const Place& place : members_.ring()) {
    const Member* member = At(place);
    if (member == nullptr || place.name == writer) continue;
    // Progress may be held back for as long as no step ends; heartbeats are not.
    if (std::max(member->applied, member->beat) >= step) continue;
    const bool holds = std::ranges::any_of(told, [&](const SnapshotReport& report) {
      return report.worker == place.name && report.incarnation == place.incarnation;
    });
    if (holds) continue;
    return fmt::format("{} to say that it applied step {}", member->called(), step - 1);
  }
  return "";
}

Fault Run::OnStateFault(const Member& from, const v1::JobFailed& said, Now now, Actions& actions) {
  const std::string& name = from.name();
  if (!InRing(name)) {
    RefuseJoiner(name, said.reason(), now);
    return {};
  }
  const std::string reason =
      fmt::format("{} left the ring {}: {}", from.called(),
                  coordinator::At(said.step(), PhaseOf(from)), said.reason());
  if (disagreement_) disagreement_.reset();
  return LeaveFor({name}, said.step(), reason, now, actions);
}

// Those named leave; states after `good` go with them.
Fault Run::LeaveFor(const std::vector<std::string>& names, uint64_t good, const std::string& reason,
                    Now now, Actions& actions) {
  Tell(event_type::kStateFault, Severity::kError, reason, names.front());
  if (report_.CountStateFault() > kMostStateFaults) {
    return {Cause::kStateDiffers, reason + "; it is the second time in this job", names.front(),
            good};
  }
  last_loss_ = reason;
  spoilt_ = Spoilt{generation_, good};
  distrusted_ = good;
  for (const std::string& name : names) {
    if (const Member* member = Find(name); member != nullptr) {
      (void)readmission_.Bar(name, member->incarnation(), now);
      fence_.Forget(name);
      LetGo(name, false, reason);
    }
  }
  fence_.DropAccusation();
  if (phase_ == Phase::kRunning || fence_.at_boundary()) {
    BeginFence(FenceWhen::kNow, reason, now, actions);
  }
  return {};
}

bool Run::IsSpoilt(const GenerationId& ran, uint64_t applied) const {
  return spoilt_ && applied > spoilt_->step && ran <= spoilt_->generation;
}

// Of those who acknowledged: who has applied sums with wrong bits begins anew.
void Run::LeaveOutSpoilt(std::vector<std::string>& names) {
  for (const std::string& name : std::exchange(names, {})) {
    const Member& member = *Find(name);
    if (!IsSpoilt(member.ran, member.holding.applied)) {
      names.push_back(name);
      continue;
    }
    const std::string why =
        fmt::format("its state of step {} may have wrong bits of the worker that was named",
                    member.holding.applied);
    Tell(event_type::kWorkerLeft, Severity::kWarning,
         fmt::format("{} joins anew: {}", member.called(), why), name);
    left_.insert(name);
    LetGo(name, false, why);
  }
}

// ---- digests that differ ------------------------------------------------------------------------

void Run::OnDisagreement(uint64_t step, const Status& how) {
  if (disagreement_ && disagreement_->step <= step) return;
  const bool asked = disagreement_ && disagreement_->asked;
  disagreement_ = Disagreement{step, FaultOf(Cause::kStateDiffers, how), asked};
}

// Members of a ring are asked to look at what they hold; nobody else can be.
Fault Run::AskAboutDisagreement(Now now, Actions& actions) {
  if (!disagreement_ || disagreement_->asked || phase_ == Phase::kAdopting) return {};
  if (phase_ != Phase::kRunning && phase_ != Phase::kFencing) return disagreement_->fault;
  disagreement_->asked = true;
  BeginFence(FenceWhen::kNow, disagreement_->fault.reason, now, actions);
  return {};
}

// Everybody acknowledged, so what each holds is what it wrote: most of three or more are right.
Fault Run::SettleDisagreement(Now now, Actions& actions) {
  if (!disagreement_) return {};
  const Disagreement disagreement = *std::exchange(disagreement_, std::nullopt);
  const std::vector<std::string> named = digests_.Minority();
  const uint64_t good = std::max(start_step_, digests_.AgreedBefore(disagreement.step));
  if (named.empty()) return disagreement.fault;
  std::string who;
  for (const std::string& name : named) {
    const Member* member = Find(name);
    who += (who.empty() ? "" : ", ") + (member == nullptr ? Called(name, "") : member->called());
  }
  return LeaveFor(named, good,
                  fmt::format("{} left the ring: {}, and most members say the same as each other",
                              who, disagreement.fault.reason),
                  now, actions);
}

std::optional<uint64_t> Run::TakeDistrusted() { return std::exchange(distrusted_, std::nullopt); }

}  // namespace ringmaster::coordinator
