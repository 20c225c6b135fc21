// Shards follow speed: when the members of a class were seen to take unequally long, the ring is
// formed again at a step boundary with other counts, or without a member that only delays it. No
// bit of the result depends on it.
#include <algorithm>
#include <cmath>
#include <utility>

#include "coordinator/logic/run/balance.h"
#include "coordinator/logic/run/run.h"

namespace ringmaster::coordinator {
namespace {

constexpr uint64_t kMeasuredSteps = 4;  // of a generation, before its times count
constexpr double kWorthwhile = 0.1;     // part of a step's computing that must be won
// A ring is formed again in tenths of a second; what is won until the job ends must be far more.
constexpr double kLeastWon = 5;
constexpr std::chrono::milliseconds kLook{1'000}, kFirstPause{10'000}, kMostPause{300'000};

}  // namespace

void Run::MeasurePace(Member& member) const {
  const std::optional<size_t> rank = members_.RankOf(member.name());
  const v1::StepTimes& times = member.progress.step_times();
  const double seconds = times.input() + times.compute();
  const bool said = seconds > 0 && std::isfinite(seconds);
  if (!rank || member.applied < start_step_ + kMeasuredSteps || !said) return;
  const auto shards = static_cast<uint32_t>(members_.ring()[*rank].shards.size());
  if (shards == 0) return;
  member.shard_seconds = seconds / SecondsOf({member.attach.cores(), 1}, shards);
}

// Nothing while some of the ring's members of the class were not measured in this generation.
std::optional<Run::ClassPace> Run::PaceOfClass(const v1::MappedClass& its) const {
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
  pace.now = pace.balanced = pace.without = LongestOf(pace.counts, pace.paces);
  pace.slowest = pace.members.front();
  if (pace.members.size() == 1) return pace;
  pace.balanced = LongestOf(Balance(its.shards(), pace.paces), pace.paces);
  const Without best = BestWithoutOne(its.shards(), pace.paces);
  pace.slowest = pace.members[best.member];
  pace.without = best.seconds;
  return pace;
}

std::string Run::FindBalance(Now now) {
  if (now.steady < balance_at_ || AnyFinished() || !RingJoined()) return "";
  balance_at_ = now.steady + kLook;
  const auto left = static_cast<double>(resolved_->result().total_steps() - committed_);
  double longest = 0, next = 0;  // of all classes: a step waits for the last one
  std::string reason, slow;
  for (const v1::MappedClass& each : map().classes()) {
    const std::optional<ClassPace> pace = PaceOfClass(each);
    if (!pace) return "";
    longest = std::max(longest, pace->now);
    const bool spare = members_.ring().size() > min_;
    const bool leaves = spare && pace->without < (1 - kWorthwhile) * pace->balanced;
    const double best = leaves ? pace->without : pace->balanced;
    next = std::max(next, best);
    if (best > (1 - kWorthwhile) * pace->now) continue;
    reason = fmt::format("shards follow speed: {} instead of {} of computing a step",
                         FormatSeconds(best), FormatSeconds(pace->now));
    if (leaves) slow = pace->slowest->name();
  }
  const bool worthwhile = !reason.empty() && next <= (1 - kWorthwhile) * longest &&
                          (longest - next) * left >= kLeastWon;
  if (!worthwhile) return "";
  too_slow_ = slow;
  balance_pause_ = std::clamp(2 * balance_pause_, kFirstPause, kMostPause);
  balance_at_ = now.steady + balance_pause_;
  return reason;
}

void Run::LeaveOutSlow(std::vector<std::string>& names, Now now) {
  const std::string out = std::exchange(too_slow_, "");
  const Member* member = Find(out);
  const auto others = std::ranges::count_if(names, [&](const std::string& name) {
    return name != out && member != nullptr && Find(name)->class_name == member->class_name;
  });
  const bool there = std::ranges::find(names, out) != names.end();
  if (!there || others == 0 || names.size() <= min_ || members_.HoldsAlone(out, names)) return;
  const auto bar = readmission_.BarSlow(out, member->incarnation(), now);
  Tell(event_type::kWorkerLeft, Severity::kWarning,
       fmt::format("{} is left out: it takes {} for each of its shards, and without it the others "
                   "are done sooner; it may join again after {}",
                   member->called(), FormatSeconds(member->shard_seconds),
                   FormatSeconds(std::chrono::duration<double>(bar).count())),
       out);
  slow_[out] = {member->incarnation(), member->shard_seconds};
  left_.insert(out);
  LetGo(out, false, "the job is faster without it");
  std::erase(names, out);
}

double Run::KnownPace(const Member& member) const {
  if (member.shard_seconds > 0) return member.shard_seconds;
  const auto slow = slow_.find(member.name());
  const bool same = slow != slow_.end() && slow->second.incarnation == member.incarnation();
  return same ? slow->second.shard_seconds : 0;
}

// `; without it this job would be 12% faster`, where it would be.
std::string Run::DescribeWithout(const v1::JobStatus& status) const {
  if (!status.has_straggler() || !resolved_) return "";
  const Member* member = Find(status.straggler().worker());
  if (member == nullptr) return "";
  for (const v1::MappedClass& each : map().classes()) {
    if (each.class_() != member->class_name) continue;
    const std::optional<ClassPace> pace = PaceOfClass(each);
    const double step = member->progress.step_times().total();
    if (!pace || pace->slowest != member || !(step > pace->now)) return "";
    const double without = step - pace->now + pace->without;
    const int percent = static_cast<int>(100 * (step / without - 1));
    if (percent < 1) return "";
    const std::string why = members_.ring().size() <= min_ ? ", but workers.min needs it" : "";
    return fmt::format("; without it this job would be {}% faster{}", percent, why);
  }
  return "";
}

}  // namespace ringmaster::coordinator
