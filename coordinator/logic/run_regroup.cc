// From the fence to those who will be in the next generation: who answers, and who is left out.
#include <algorithm>
#include <utility>

#include "coordinator/logic/ring_order.h"
#include "coordinator/logic/run.h"

namespace ringmaster::coordinator {
namespace {

bool Has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

// Of one that a neighbour accuses less is waited for: two of its connections say the same.
bool Run::Silent(const Member& member, Now now) const {
  const bool accused = regroup_ && accusation_ && accusation_->accused == member.name();
  return member.silent_for(now) > (accused ? options_.accused_silence() : options_.silence);
}

// May be in the next generation.
bool Run::Eligible(const Member& member, Now now) const {
  return member.role == Role::kReady && !member.owes && !member.leaving && !Silent(member, now) &&
         !Barred(member.attach, now);
}

size_t Run::CountEligible(Now now) const {
  return static_cast<size_t>(std::count_if(members_.begin(), members_.end(),
                                           [&](const Member& m) { return Eligible(m, now); }));
}

// ---- the fence ----------------------------------------------------------------------------------

void Run::SendFence(Member& member, const GenerationId& generation, FenceWhen when,
                    Actions& actions) const {
  v1::CoordinatorMessage message;
  message.mutable_fence()->set_job_id(job_id_);
  *message.mutable_fence()->mutable_generation() = ToProto(generation);
  message.mutable_fence()->set_at_boundary(when == FenceWhen::kAtBoundary);
  Send(member, message, actions);
  member.fence = generation;
  member.owes = true;
}

// Everybody who is ready is fenced; those who owed nothing and are heard are waited for. A fence
// that replaces one at a boundary waits for the same ones, and keeps what was noticed first.
void Run::BeginFence(FenceWhen when, const std::string& reason, Now now, Actions& actions) {
  Regroup next;
  next.generation = generations_.Next();
  next.when = when;
  next.reason = regroup_ ? regroup_->reason : reason;
  next.begun = regroup_ ? regroup_->begun : now.steady;
  next.unix_ms = regroup_ ? regroup_->unix_ms : now.unix_ms;
  next.deadline = now.steady + options_.fence_limit;
  for (Member& member : members_) {
    member.finished.reset();  // it says so again in the next generation
    if (member.role != Role::kReady || Barred(member.attach, now)) continue;
    const bool asked = !member.owes || (regroup_ && regroup_->asked.contains(member.name()));
    if (asked && !Silent(member, now)) next.asked.insert(member.name());
    SendFence(member, next.generation, when, actions);
  }
  if (started_)
    actions.push_back(Note{"job=" + job_id_, fmt::format("fences generation {}: {}",
                                                         next.generation.ToString(), reason)});
  if (state_ == v1::JOB_STATE_WAITING) reason_ = "forms the ring";
  regroup_ = std::move(next);
  Enter(Phase::kFencing, options_.fence_limit, now);
}

Fault Run::OnFenceAck(Member& from, const v1::FenceAck& said) {
  if (from.role != Role::kReady || phase_ == Phase::kStopping) return {};
  if (FromProto(said.generation()) != from.fence) return {};  // of an older fence
  const uint64_t total = resolved_->result().total_steps();
  if (said.applied() > total) {
    return {Cause::kProtocolViolation,
            fmt::format("{} says that it holds step {}, but the job has {} steps", from.called(),
                        said.applied(), total),
            from.name()};
  }
  if (Fault fault = CheckDigests(from, said.applied(), said.digests()); !fault.ok()) return fault;
  if (Fault fault = CheckDigest(from, said.applied(), said.digest()); !fault.ok()) return fault;
  from.holding.applied = said.applied();
  from.holding.digest = said.digest();
  from.holding.folded.assign(said.folded().begin(), said.folded().end());
  from.holding.evaluated = said.evaluated();
  from.applied = said.applied();
  from.owes = false;
  from.lost_told = false;
  RaiseCommitted();
  return {};
}

// Everyone who was asked has acknowledged, or is out: gone, silent, or too late.
bool Run::FenceOver(Now now) {
  const bool at_boundary = regroup_->when == FenceWhen::kAtBoundary;
  return std::all_of(regroup_->asked.begin(), regroup_->asked.end(), [&](const std::string& name) {
    const Member* member = Find(name);
    if (member == nullptr || !member->owes) return true;
    // A step that cannot end has no boundary: SettleOnce asks the ring again, at once.
    if (at_boundary && InRing(name)) return false;
    return Silent(*member, now) || now.steady >= regroup_->deadline;
  });
}

std::vector<std::string> Run::Answered(Now now) {
  std::vector<std::string> names;
  const auto take = [&](const std::string& name) {
    const Member* member = Find(name);
    if (member == nullptr || Has(names, name) || member->fence != regroup_->generation) return;
    if (Eligible(*member, now)) names.push_back(name);
  };
  for (const Place& place : ring_) {
    if (At(place) != nullptr) take(place.name);
  }
  std::vector<std::string> others;  // who has more first, else by name
  for (const Member& member : members_) others.push_back(member.name());
  std::sort(others.begin(), others.end(), [&](const std::string& a, const std::string& b) {
    const uint64_t has_a = Find(a)->holding.applied, has_b = Find(b)->holding.applied;
    return has_a != has_b ? has_a > has_b : a < b;
  });
  for (const std::string& name : others) take(name);
  return names;
}

uint64_t Run::HighestApplied(const std::vector<std::string>& names) {
  uint64_t highest = 0;
  for (const std::string& name : names) highest = std::max(highest, Find(name)->holding.applied);
  return highest;
}

bool Run::HoldsAlone(const std::string& name, const std::vector<std::string>& names) {
  const uint64_t highest = HighestApplied(names);
  return std::all_of(names.begin(), names.end(), [&](const std::string& each) {
    return (Find(each)->holding.applied == highest) == (each == name);
  });
}

void Run::TellUnanswered(Now now) {
  for (const std::string& name : regroup_->asked) {
    Member* member = Find(name);
    if (member == nullptr || !member->owes || member->lost_told) continue;
    member->lost_told = true;
    last_loss_ = fmt::format(
        "{} was lost {}: it did not acknowledge the fence of generation {}, {}", member->called(),
        coordinator::At(std::max(committed_, member->applied), PhaseOf(*member)),
        regroup_->generation.ToString(),
        Silent(*member, now)
            ? fmt::format("and was silent for {} ms", member->silent_for(now).count())
            : fmt::format("for {} ms", options_.fence_limit.count()));
    Tell(event_type::kWorkerLost, Severity::kWarning, last_loss_, name);
  }
}

// ---- who is in ----------------------------------------------------------------------------------

Fault Run::Conclude(Now now, Actions& actions) {
  TellUnanswered(now);
  std::vector<std::string> names = Answered(now);
  LeaveOutAccused(names, now);
  const bool enough = names.size() >= std::max<size_t>(min_, 1);
  const uint64_t highest = HighestApplied(names);
  if (enough && highest >= NeededStep()) restore_.reset();
  if (!enough && !started_) {
    requeue_ = last_loss_;
    return {};
  }
  if (!enough || (highest < NeededStep() && !restore_)) {
    Wait(now);
    return {};
  }
  names = TakeSeats(std::move(names), now);
  const bool still_enough = names.size() >= std::max<size_t>(min_, 1);
  if (!still_enough || (HighestApplied(names) < NeededStep() && !restore_)) {
    Wait(now);
    return {};
  }
  SendStart(names, now, actions);
  return {};
}

// Both ends of the accused link answered, and nobody else was lost: the link is bad.
void Run::LeaveOutAccused(std::vector<std::string>& names, Now now) {
  const std::optional<Accusation> accusation = std::exchange(accusation_, std::nullopt);
  if (!accusation || !Has(names, accusation->accuser) || !Has(names, accusation->accused)) return;
  const bool lost_one =
      std::any_of(ring_.begin(), ring_.end(), [&](const Place& p) { return !Has(names, p.name); });
  if (lost_one) return;
  const bool again = suspicions_.Add(*accusation, now);
  const std::string& a = accusation->accuser;
  const std::string& b = accusation->accused;
  if (!again && OrderRing(names, suspicions_.BadPairs(now))) return;
  const size_t by_a = suspicions_.AccusersOf(a, now), by_b = suspicions_.AccusersOf(b, now);
  // Who attached later has the larger session.
  bool a_goes = by_a != by_b ? by_a > by_b : Find(a)->session > Find(b)->session;
  // Without the only holder the job would go back to a checkpoint.
  if (HoldsAlone(a_goes ? a : b, names)) a_goes = !a_goes;
  const std::string out = a_goes ? a : b;
  Evict(
      out,
      fmt::format("{} and {} do not reach each other, although both acknowledged the fence", a, b),
      now);
  std::erase(names, out);
}

// The ring's order, at most workers.max, with one that has the most.
std::vector<std::string> Run::TakeSeats(std::vector<std::string> names, Now now) {
  if (names.size() > most_) {
    const uint64_t highest = HighestApplied(names);
    const auto holder = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
      return Find(name)->holding.applied == highest;
    });
    if (static_cast<size_t>(holder - names.begin()) >= most_) std::swap(names[most_ - 1], *holder);
    for (size_t i = most_; i < names.size(); ++i) {
      LetGo(names[i], false, fmt::format("the job has its {} workers", most_));
    }
    names.resize(most_);
  }
  while (names.size() > 1) {
    std::optional<std::vector<std::string>> order = OrderRing(names, suspicions_.BadPairs(now));
    if (order) return *std::move(order);
    // Links that were bad before, and a ring that became too small to avoid them.
    const std::string out = *std::max_element(
        names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
          if (HoldsAlone(a, names) || HoldsAlone(b, names)) return HoldsAlone(a, names);
          const size_t by_a = suspicions_.AccusersOf(a, now), by_b = suspicions_.AccusersOf(b, now);
          return by_a != by_b ? by_a < by_b : Find(a)->session < Find(b)->session;
        });
    Evict(out, "its links are bad, and this ring is too small to avoid them", now);
    std::erase(names, out);
  }
  return names;
}

}  // namespace ringmaster::coordinator
