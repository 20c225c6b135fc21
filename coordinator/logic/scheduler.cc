#include "coordinator/logic/scheduler.h"

#include <algorithm>
#include <map>
#include <set>

#include "common/job/resolve.h"

namespace ringmaster::coordinator {
namespace {

struct ClassGroup {
  const v1::NumericsClass* numerics_class;
  std::vector<std::string> free;
};

std::vector<ClassGroup> GroupFree(const std::optional<v1::ResolvedJob>& resolved,
                                  const Fleet& fleet) {
  std::vector<ClassGroup> groups;
  for (const auto& [name, worker] : fleet.workers()) {
    if (!worker.free()) continue;
    const v1::NumericsClass& its = worker.attach.numerics_class();
    if (resolved && !job::Difference(resolved->result().numerics_class(), its).empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const ClassGroup& other) {
      return job::Difference(*other.numerics_class, its).empty();
    });
    if (group == groups.end()) group = groups.insert(group, {&its, {}});
    group->free.push_back(name);
  }
  // Stable: of two equally large classes the one of the first name stays in front.
  std::stable_sort(groups.begin(), groups.end(), [](const ClassGroup& a, const ClassGroup& b) {
    return a.free.size() > b.free.size();
  });
  return groups;
}

// Workers that would fit beside `group`, were they free; jobs that hold them go to `jobs`.
size_t CountBusy(const Fleet& fleet, const v1::NumericsClass& numerics_class,
                 std::set<std::string>* jobs) {
  size_t busy = 0;
  for (const auto& [name, worker] : fleet.workers()) {
    if (worker.free() || worker.draining) continue;
    if (!job::Difference(numerics_class, worker.attach.numerics_class()).empty()) continue;
    ++busy;
    if (!worker.job.empty()) jobs->insert(worker.job.value());
  }
  return busy;
}

std::string Plural(size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// The class that most of the free workers have; when none is free, that of the first worker.
const v1::NumericsClass* LikelyClass(const std::vector<ClassGroup>& groups, const Fleet& fleet) {
  if (!groups.empty()) return groups.front().numerics_class;
  if (fleet.workers().empty()) return nullptr;
  return &fleet.workers().begin()->second.attach.numerics_class();
}

std::vector<std::string> Advise(size_t least, size_t have, const std::vector<ClassGroup>& groups,
                                const Fleet& fleet) {
  std::vector<std::string> advice;
  std::set<std::string> jobs;
  const v1::NumericsClass* likely = LikelyClass(groups, fleet);
  const size_t busy = likely == nullptr ? 0 : CountBusy(fleet, *likely, &jobs);
  if (have + busy >= least) {
    std::string names;
    for (const std::string& job : jobs) names += (names.empty() ? "" : " and ") + job;
    advice.push_back(names.empty() ? "wait: busy workers become free"
                                   : fmt::format("wait until {} ended, or cancel it", names));
  }
  advice.push_back(fmt::format("start {}{}", Plural(least - have, "more worker"),
                               have == 0 ? "" : " like " + groups.front().free.front()));
  if (have > 0) advice.push_back(fmt::format("submit it again with workers.min {}", have));
  return advice;
}

// "; 2 are busy with j0001, j0002"
std::string DescribeBusy(const Fleet& fleet) {
  std::map<std::string, size_t> jobs;
  size_t busy = 0, ending = 0;
  for (const auto& [name, worker] : fleet.workers()) {
    if (!worker.job.empty()) {
      ++busy;
      ++jobs[worker.job.value()];
    } else if (worker.releasing) {
      ++ending;
    }
  }
  std::string text;
  if (busy > 0) {
    text += fmt::format("; {} {} busy with ", busy, busy == 1 ? "is" : "are");
    const char* separator = "";
    for (const auto& [job, count] : jobs) {
      text += separator + job;
      separator = ", ";
    }
  }
  if (ending > 0)
    text += fmt::format("; {} still {} an ended job", ending, ending == 1 ? "ends" : "end");
  return text;
}

std::string DescribeClasses(const std::vector<ClassGroup>& groups) {
  if (groups.size() < 2) return "";
  return fmt::format(
      "; {} more of other numerics classes cannot join them ({} and {} differ: {})",
      [&] {
        size_t others = 0;
        for (size_t i = 1; i < groups.size(); ++i) others += groups[i].free.size();
        return others;
      }(),
      groups[0].free.front(), groups[1].free.front(),
      job::Difference(*groups[0].numerics_class, *groups[1].numerics_class));
}

}  // namespace

Placement Place(const v1::JobSpec& spec, const std::optional<v1::ResolvedJob>& resolved,
                const Fleet& fleet) {
  const v1::WorkerRange range = job::WorkersOf(spec);
  const size_t most = std::min(range.max(), job::ShardsOf(spec));
  std::vector<ClassGroup> groups = GroupFree(resolved, fleet);
  const size_t have = groups.empty() ? 0 : groups.front().free.size();
  if (have >= range.min() && have > 0) {
    std::vector<std::string> chosen = std::move(groups.front().free);
    chosen.resize(std::min(chosen.size(), most));
    return {std::move(chosen), ""};
  }
  const size_t missing = range.min() - have;
  return {
      {},
      fmt::format("needs {} {} of one numerics class, {} {} attached and free: {} missing{}{}",
                  range.min(), range.min() == 1 ? "worker" : "workers", have,
                  have == 1 ? "is" : "are", missing, DescribeBusy(fleet), DescribeClasses(groups)),
      Advise(range.min(), have, groups, fleet)};
}

std::vector<std::string> FindJoiners(const Run& run, const Fleet& fleet, Now now) {
  const v1::NumericsClass& wanted = run.resolved()->result().numerics_class();
  std::vector<std::string> names;
  const size_t room = run.room();
  for (const auto& [name, worker] : fleet.workers()) {
    if (names.size() >= room) break;
    if (!worker.free() || run.Barred(worker.attach, now)) continue;
    if (job::Difference(wanted, worker.attach.numerics_class()).empty()) names.push_back(name);
  }
  return names;
}

}  // namespace ringmaster::coordinator
