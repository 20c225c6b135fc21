// While the ring runs: what makes it regroup, and how many shards each computes.
#include <algorithm>
#include <cmath>
#include <utility>

#include "common/job/balance.h"
#include "common/planted_bug.h"
#include "coordinator/logic/explain.h"
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
    if (member == nullptr || member->finished || !member->idle_since) continue;
    // Who follows runs when the others are connected with it.
    if (!member->joined && !(member->follows && RingJoined())) continue;
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
  } else if (const std::string whole = FindWhole(); !whole.empty()) {
    BeginFence(FenceWhen::kAtBoundary, whole, now, actions);
  } else if (const std::string balance = FindBalance(now); !balance.empty()) {
    BeginFence(FenceWhen::kAtBoundary, balance, now, actions);
  } else {
    ShowFinishing(now);
    RegroupComers(now, actions);
  }
  return {};
}

// Who follows is in it like the others, but for the state: their links are its links.
bool Run::RingJoined() const {
  return std::all_of(members_.ring().begin(), members_.ring().end(), [&](const Place& place) {
    const Member* member = At(place);
    return member != nullptr && (member->joined || member->follows || member->finished);
  });
}

bool Run::AnyFollows() const {
  return std::ranges::any_of(members_.ring(), [&](const Place& place) {
    const Member* member = At(place);
    return member != nullptr && member->follows;
  });
}

// All of the ring who have the state are to leave, and one who follows stays.
bool Run::AwaitsHeir() const {
  bool heir = false;
  for (const Place& place : members_.ring()) {
    const Member* member = At(place);
    if (member == nullptr || member->leaving) continue;
    if (!member->follows) return false;
    heir = true;
  }
  return heir;
}

// Who followed has the state, and nobody follows any more: that one would begin anew. Behind the
// last step there are no shards.
std::string Run::FindWhole() const {
  std::string names;
  size_t count = 0;
  for (const Place& place : members_.ring()) {
    if (!place.shards.empty()) continue;
    names += (names.empty() ? "" : ", ") + place.name;
    ++count;
  }
  const bool due = count > 0 && !AnyFinished() && committed_ + 1 < EndStep() && !AnyFollows();
  if (!due || !RingJoined()) return "";
  return fmt::format("{} {} the state, and {} shards", names, count == 1 ? "has" : "have",
                     count == 1 ? "gets" : "get");
}

void Run::RegroupComers(Now now, Actions& actions) {
  std::string leaves, joins;
  std::vector<std::string> idle;      // leave, and are in no ring
  const bool follows = AnyFollows();  // who does would begin anew: others come after it
  for (const Member& member : members_) {
    if (InRing(member.name())) {
      if (member.leaving) leaves += (leaves.empty() ? "" : ", ") + member.name();
    } else if (member.leaving) {
      idle.push_back(member.name());
    } else if (ticks_ && !follows && !AnyFinished() && Eligible(member, now)) {
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
  if (AwaitsHeir()) return;
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
  size_t compute = members_.ring().size(), stand_still = 0;  // of those who have the state
  for (const Member& member : members_) {
    if (!InRing(member.name()) || member.finished) continue;
    compute -= member.follows ? 1 : 0;
    if (phase_ == Phase::kFencing && !member.owes) continue;
    const auto still = member.watch.Frozen(options_.stall_limit, now);
    if (!still) continue;
    stand_still += member.follows ? 0 : 1;
    frozen.emplace_back(
        member.name(),
        fmt::format("it lives, but its work in {} has stood still for {:.1f} s",
                    member.watch.phase(), std::chrono::duration<double>(*still).count()));
  }
  // All at once: what they wait for is not one of them.
  if (stand_still == compute && compute > 1) return;
  for (const auto& [name, why] : frozen) Evict(name, why, now);
}

// ---- shards follow speed ------------------------------------------------------------------------
//
// When the members of a class were seen to take unequally long, the ring is formed again at a step
// boundary with other counts, or without a member that only delays it. No bit of the result depends
// on it.

namespace {

constexpr uint64_t kMeasuredSteps = 4;  // of a generation, before its times count
constexpr double kWorthwhile = 0.1;     // part of a step's computing that must be won
// A ring is formed again in tenths of a second; what is won until the job ends must be far more.
constexpr double kLeastWon = 5;
constexpr std::chrono::milliseconds kLook{1'000}, kFirstPause{10'000}, kMostPause{300'000};

}  // namespace

void Run::MeasurePace(Member& member) {
  const std::optional<size_t> rank = members_.RankOf(member.name());
  const v1::StepTimes& times = member.progress.step_times();
  const double seconds = times.input() + times.compute();
  const bool said = seconds > 0 && std::isfinite(seconds);
  if (!rank || member.applied < start_step_ + kMeasuredSteps || !said) return;
  const auto shards = static_cast<uint32_t>(members_.ring()[*rank].shards.size());
  if (shards == 0) return;
  member.shard_seconds = seconds / job::SecondsOf({member.attach.cores(), 1}, shards);
  slow_.erase(member.name());  // it is back
}

// Nothing while some of the ring's members of the class were not measured in this generation. At
// most `spare` may be left out.
std::optional<Run::ClassPace> Run::PaceOfClass(const v1::MappedClass& its, size_t spare) const {
  ClassPace pace;
  for (const Place& place : members_.ring()) {
    const Member* member = At(place);
    if (member == nullptr) return std::nullopt;
    if (member->class_name != its.class_()) continue;
    const bool measured = member->joined && member->applied >= start_step_ + kMeasuredSteps &&
                          member->shard_seconds > 0;
    if (!measured) return std::nullopt;
    pace.members.push_back(member);
    pace.counts.push_back(static_cast<uint32_t>(place.shards.size()));
    pace.paces.push_back({member->attach.cores(), member->shard_seconds});
  }
  if (pace.members.empty()) return std::nullopt;
  pace.now = job::LongestOf(pace.counts, pace.paces);
  const job::Without best = job::BestWithout(its.shards(), pace.paces,
                                             std::min(spare, pace.members.size() - 1), kWorthwhile);
  pace.best = best.seconds;
  for (const size_t member : best.members) pace.slow.push_back(pace.members[member]->name());
  return pace;
}

std::string Run::FindBalance(Now now) {
  if (now.steady < balance_at_ || AnyFinished() || !RingJoined()) return "";
  balance_at_ = now.steady + kLook;
  const auto left = static_cast<double>(resolved_->result().total_steps() - committed_);
  size_t spare = members_.ring().size() - std::min(members_.ring().size(), min_);
  double longest = 0, next = 0;  // of all classes: a step waits for the last one
  std::string reason;
  std::vector<std::string> slow;
  for (const v1::MappedClass& each : map().classes()) {
    const std::optional<ClassPace> pace = PaceOfClass(each, spare);
    if (!pace) return "";
    longest = std::max(longest, pace->now);
    next = std::max(next, pace->best);
    if (pace->best > (1 - kWorthwhile) * pace->now) continue;
    reason = fmt::format("shards follow speed: {} instead of {} of computing a step",
                         FormatSeconds(pace->best), FormatSeconds(pace->now));
    slow.insert(slow.end(), pace->slow.begin(), pace->slow.end());
    spare -= pace->slow.size();
  }
  const bool worthwhile = !reason.empty() && next <= (1 - kWorthwhile) * longest &&
                          (longest - next) * left >= kLeastWon;
  if (!worthwhile) return "";
  too_slow_ = std::move(slow);
  balance_pause_ = std::clamp(2 * balance_pause_, kFirstPause, kMostPause);
  balance_at_ = now.steady + balance_pause_;
  return reason;
}

void Run::LeaveOutSlow(std::vector<std::string>& names, Now now) {
  v1::JobStatus before;
  if (!too_slow_.empty()) DescribeWorkers(before);
  PredictWithout(before);
  for (const std::string& out : std::exchange(too_slow_, {})) {
    const Member* member = Find(out);
    const auto others = std::ranges::count_if(names, [&](const std::string& name) {
      return name != out && member != nullptr && Find(name)->class_name == member->class_name;
    });
    const bool there = std::ranges::find(names, out) != names.end();
    if (!there || others == 0 || names.size() <= min_ || members_.HoldsAlone(out, names)) continue;
    const auto bar = readmission_.BarSlow(out, member->incarnation(), now);
    Tell(event_type::kWorkerLeft, Severity::kWarning,
         fmt::format("{} is left out: it takes {} for each of its shards, and without it the "
                     "others are done sooner; it may join again after {}",
                     member->called(), FormatSeconds(member->shard_seconds),
                     FormatSeconds(std::chrono::duration<double>(bar).count())),
         out);
    SlowWorker& slow = slow_[out];
    slow.incarnation = member->incarnation();
    slow.told = *std::ranges::find(before.workers(), out, &v1::JobWorker::name);
    slow.told.clear_shards();
    slow.told.clear_phase();
    slow.told.clear_step_times();
    slow.told.clear_data_fetch();
    left_.insert(out);
    LetGo(out, false, "the job is faster without it");
    std::erase(names, out);
  }
}

void Run::DescribeLeftOut(v1::JobStatus& status) const {
  status.clear_left_out();
  for (const auto& [name, slow] : slow_) {
    if (!InRing(name)) *status.add_left_out() = slow.told;
  }
}

double Run::KnownPace(const Member& member) const {
  if (member.shard_seconds > 0) return member.shard_seconds;
  const auto slow = slow_.find(member.name());
  const bool same = slow != slow_.end() && slow->second.incarnation == member.incarnation();
  return same ? slow->second.told.shard_seconds() : 0;
}

}  // namespace ringmaster::coordinator
