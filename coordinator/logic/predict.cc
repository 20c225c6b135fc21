#include "coordinator/logic/explain.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/job/balance.h"
#include "common/job/resolve.h"
#include "coordinator/logic/run/run_report.h"

namespace ringmaster::coordinator {
namespace {

constexpr double kLeastSaid = 0.05;  // part of a step; less is what measurements differ by
constexpr size_t kMostNames = 4;

// The ring's members of one class.
struct ClassMembers {
  std::vector<int> members;  // places in the status
  std::vector<job::Pace> paces;
  uint32_t shards = 0;
  [[nodiscard]] double Longest() const {
    return job::LongestOf(job::Balance(shards, paces), paces);
  }
};

bool IsMeasured(const v1::JobWorker& worker) {
  const v1::StepTimes& times = worker.step_times();
  return worker.cores() > 0 && worker.shard_seconds() > 0 &&
         std::isfinite(worker.shard_seconds()) && times.total() > 0 &&
         std::isfinite(times.total()) && std::isfinite(times.input() + times.compute()) &&
         std::isfinite(times.ring_wait() + times.ring_transfer());
}

double OwnOf(const v1::JobWorker& worker) {
  return worker.step_times().input() + worker.step_times().compute();
}

// By class; nothing while one of the ring's members was not measured.
std::map<std::string, ClassMembers> ClassesOf(const v1::JobStatus& status) {
  std::map<std::string, ClassMembers> classes;
  for (int i = 0; i < status.workers_size(); ++i) {
    const v1::JobWorker& worker = status.workers(i);
    if (worker.shards().empty()) continue;
    if (!IsMeasured(worker)) return {};
    ClassMembers& its = classes[worker.class_()];
    its.members.push_back(i);
    its.paces.push_back({worker.cores(), worker.shard_seconds()});
    its.shards += static_cast<uint32_t>(worker.shards_size());
  }
  return classes;
}

// What a step takes beside the shards, and how much of that is the ring's: of the member that
// takes longest for its shards, as the others wait for it.
struct Beside {
  double all = 0, ring = 0;
};

Beside BesideShards(const v1::JobStatus& status) {
  const v1::JobWorker* late = nullptr;
  for (const v1::JobWorker& worker : status.workers()) {
    if (worker.shards().empty()) continue;
    if (late == nullptr || OwnOf(worker) > OwnOf(*late)) late = &worker;
  }
  if (late == nullptr) return {};
  const v1::StepTimes& times = late->step_times();
  const double all = std::max(0.0, times.total() - OwnOf(*late));
  return {all, std::clamp(times.ring_wait() + times.ring_transfer(), 0.0, all)};
}

struct Prediction {
  std::vector<int> members;  // places in the status
  double seconds = 0;        // of a step
};

Prediction WithoutSlowest(const std::map<std::string, ClassMembers>& classes, double beside) {
  double shortest = 0;  // of all classes: a step waits for the last one
  for (const auto& [name, its] : classes) {
    const job::Without best =
        job::BestWithout(its.shards, its.paces, its.paces.size() - 1, kLeastSaid);
    shortest = std::max(shortest, best.seconds);
  }
  Prediction found{{}, beside + shortest};
  for (const auto& [name, its] : classes) {  // none whose class is done by then with it
    const job::Without best =
        job::BestWithout(its.shards, its.paces, its.paces.size() - 1, kLeastSaid, shortest);
    for (const size_t member : best.members) found.members.push_back(its.members[member]);
  }
  return found;
}

Prediction FastestAlone(const ClassMembers& its, const Beside& beside) {
  const auto seconds = [&](size_t i) { return job::SecondsOf(its.paces[i], its.shards); };
  size_t fastest = 0;
  for (size_t i = 1; i < its.paces.size(); ++i) {
    if (seconds(i) < seconds(fastest)) fastest = i;
  }
  Prediction alone{its.members, beside.all - beside.ring + seconds(fastest)};
  alone.members.erase(alone.members.begin() + static_cast<std::ptrdiff_t>(fastest));
  return alone;
}

size_t RingOf(const v1::JobStatus& status) {
  return static_cast<size_t>(std::ranges::count_if(
      status.workers(), [](const v1::JobWorker& worker) { return !worker.shards().empty(); }));
}

size_t LeastOf(const v1::JobStatus& status) {
  return std::max<size_t>(job::WorkersOf(status.spec()).min(), 1);
}

// Members of the ring of its class, itself included.
size_t CountClass(const v1::JobStatus& status, const v1::JobWorker& member) {
  return static_cast<size_t>(
      std::ranges::count_if(status.workers(), [&](const v1::JobWorker& worker) {
        return !worker.shards().empty() && worker.class_() == member.class_();
      }));
}

}  // namespace

void PredictWithout(v1::JobStatus& status) {
  for (v1::JobWorker& worker : *status.mutable_workers()) worker.clear_faster_without();
  const std::map<std::string, ClassMembers> classes = ClassesOf(status);
  if (classes.empty()) return;
  const Beside beside = BesideShards(status);
  double now = 0;
  for (const auto& [name, its] : classes) now = std::max(now, its.Longest());
  now += beside.all;
  Prediction best = WithoutSlowest(classes, beside.all);
  if (classes.size() == 1 && classes.begin()->second.members.size() > 1) {
    Prediction alone = FastestAlone(classes.begin()->second, beside);
    if (alone.seconds < (1 - kLeastSaid) * best.seconds) best = std::move(alone);
  }
  const double won = best.seconds > 0 ? now / best.seconds - 1 : 0;
  if (!(won >= kLeastSaid) || !std::isfinite(won)) return;
  for (const int member : best.members) {
    status.mutable_workers(member)->set_faster_without(100 * won);
  }
}

std::string DescribeWithout(const v1::JobStatus& status) {
  std::vector<std::string> names;
  double percent = 0;
  for (const v1::JobWorker& worker : status.workers()) {
    if (!(worker.faster_without() > 0)) continue;
    names.push_back(worker.name());
    percent = worker.faster_without();
  }
  if (names.empty()) return "";
  const size_t count = names.size();
  std::string who;
  if (count > kMostNames) {
    names.resize(kMostNames - 1);
    who = fmt::format("{} and {} more", fmt::join(names, ", "), count - names.size());
  } else {
    who = names.front();
    for (size_t i = 1; i < count; ++i) who += (i + 1 < count ? ", " : " and ") + names[i];
  }
  const size_t spare = RingOf(status) - std::min(RingOf(status), LeastOf(status));
  std::string needed;
  if (spare < count) {
    needed = fmt::format(", but workers.min needs {}",
                         count == 1   ? "it"
                         : spare == 0 ? "them"
                                      : fmt::format("{} of them", count - spare));
  }
  return fmt::format("without {} this job would be {:.0f}% faster{}", who, percent, needed);
}

std::string NeededToLeave(const v1::JobStatus& status, const v1::JobWorker& member) {
  const bool mixed =
      !status.class_maps().empty() && status.class_maps().rbegin()->classes_size() > 1;
  if (mixed && CountClass(status, member) == 1) {
    return fmt::format("it alone computes the shards of {}: start another worker of that class",
                       member.class_());
  }
  if (RingOf(status) > LeastOf(status)) return "";
  return fmt::format("workers.min {} needs it: start another worker, then `ringctl drain {}`",
                     LeastOf(status), member.name());
}

std::string AdviseMore(const v1::JobStatus& status) {
  const std::map<std::string, ClassMembers> classes = ClassesOf(status);
  const ClassMembers* last = nullptr;  // that a step waits for
  for (const auto& [name, its] : classes) {
    if (last == nullptr || its.Longest() > last->Longest()) last = &its;
  }
  if (last == nullptr) return "with more workers it gets fewer shards";
  const v1::WorkerRange range = job::WorkersOf(status.spec());
  const size_t ring = RingOf(status);
  if (last->paces.size() >= last->shards) {
    return "each worker has a single shard of it, so more of them change nothing: faster hosts do, "
           "or another job with more shards";
  }
  if (ring >= range.max()) {
    return fmt::format("workers.max {} lets no more workers join: submit it again with {}",
                       range.max(), ring + 1);
  }
  const auto quickest = std::ranges::min_element(last->paces, {}, &job::Pace::seconds);
  const v1::JobWorker& like =
      status.workers(last->members[static_cast<size_t>(quickest - last->paces.begin())]);
  const double now = last->Longest();
  const auto with = [&](size_t count) {
    ClassMembers more = *last;
    more.paces.insert(more.paces.end(), count, *quickest);
    return more.Longest();
  };
  const size_t room = std::min<size_t>(range.max() - ring, last->shards - last->paces.size());
  size_t none = 0, count = room;  // so many help not, or as far as any do
  while (count - none > 1) {
    const size_t middle = none + (count - none) / 2;
    (with(middle) < (1 - kLeastSaid) * now ? count : none) = middle;
  }
  if (with(count) >= (1 - kLeastSaid) * now) {
    return "more workers change nothing, as each core has a single shard: faster hosts do, or "
           "another "
           "job with more shards";
  }
  return fmt::format("start {} like {}: the shards of a step would take {} instead of {}",
                     count == 1 ? "one more worker" : fmt::format("{} more workers", count),
                     like.name(), FormatSeconds(with(count)), FormatSeconds(now));
}

}  // namespace ringmaster::coordinator
