// Shards follow speed: when the members of a class were seen to take unequally long, the ring is
// formed again at a step boundary with other counts, or without a member that only delays it. No
// bit of the result depends on it.
#include <algorithm>
#include <cmath>
#include <utility>

#include "common/job/balance.h"
#include "coordinator/logic/explain.h"
#include "coordinator/logic/run/run.h"

namespace ringmaster::coordinator {
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
