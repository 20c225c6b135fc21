#include "coordinator/logic/scheduler.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "common/job/class_map.h"
#include "common/job/resolve.h"

namespace ringmaster::coordinator {
namespace {

// The jobs that hold workers of a class.
std::set<std::string> JobsOf(const std::string& class_name, const Fleet& fleet) {
  std::set<std::string> jobs;
  for (const auto& [name, worker] : fleet.workers()) {
    if (worker.job.empty() || worker.draining || worker.class_name != class_name) continue;
    jobs.insert(worker.job.value());
  }
  return jobs;
}

std::string Plural(size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// "; 2 are busy with j0001, j0002"
std::string DescribeBusy(const Fleet& fleet) {
  std::map<std::string, size_t> jobs;
  size_t busy = 0, ending = 0, measured = 0;
  for (const auto& [name, worker] : fleet.workers()) {
    if (!worker.job.empty()) {
      ++busy;
      ++jobs[worker.job.value()];
    } else if (worker.releasing) {
      ++ending;
    } else if (worker.measuring) {
      ++measured;
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
  if (measured > 0)
    text +=
        fmt::format("; {} {} measured by `ringctl bench`", measured, measured == 1 ? "is" : "are");
  return text;
}

// `reason`, what to wait for, and so many more.
std::string WaitFor(const std::set<std::string>& jobs) {
  return jobs.empty() ? "wait: busy workers become free"
                      : fmt::format("wait until {} ended, or cancel it", fmt::join(jobs, " and "));
}

}  // namespace

Needs::Needs(const JobRecord& job) {
  const v1::JobSpec& spec = job.status.spec();
  const v1::WorkerRange workers = job::WorkersOf(spec);
  least = std::max<size_t>(workers.min(), 1);
  most = std::min<size_t>(workers.max(), job::ShardsOf(spec));
  mixes = workers.mix() != v1::MIX_NONE;
  if (job.resolved) {
    const v1::ResultSpec& result = job.resolved->result();
    // A job like another one begins where that one began.
    const v1::ClassMap& map =
        job.status.like_job().empty() ? job::NewestMap(result) : result.class_maps(0);
    for (const v1::MappedClass& each : map.classes()) classes[each.class_()] = each.shards();
    mixes = mixes || map.classes_size() > 1;
  } else {
    for (const v1::ClassShards& each : workers.classes()) classes[each.class_()] = each.shards();
  }
  if (mixes) least = std::max(least, classes.size());
}

Supply::Supply(const Fleet& fleet) : fleet_(fleet) {
  for (const auto& [name, worker] : fleet.workers()) {
    Class& its = At(worker.class_name);
    its.numerics_class = worker.attach.numerics_class();
    if (worker.free()) its.free.push_back(name);
    if (!worker.draining) ++its.attached;
  }
}

Supply::Class& Supply::At(const std::string& name) {
  for (Class& each : classes_) {
    if (each.name == name) return each;
  }
  classes_.emplace_back().name = name;
  return classes_.back();
}

std::vector<const Supply::Class*> Supply::Usable(const Needs& needs) const {
  std::vector<const Class*> usable;
  for (const Class& each : classes_) {
    if (needs.Uses(each.name)) usable.push_back(&each);
  }
  // Of two equally large classes the one of the first free name stays in front.
  std::stable_sort(usable.begin(), usable.end(), [](const Class* a, const Class* b) {
    if (a->free.size() != b->free.size()) return a->free.size() > b->free.size();
    return !a->free.empty() && a->free.front() < b->free.front();
  });
  return usable;
}

std::vector<std::string> Supply::Take(const Needs& needs) {
  if (needs.mixes) return TakeMixed(needs);
  for (const Class* each : Usable(needs)) {
    if (!each->held_for.empty()) continue;
    if (each->free.size() < needs.least) break;
    std::vector<std::string>& free = At(each->name).free;
    const auto end = free.begin() + static_cast<long>(std::min(free.size(), needs.most));
    std::vector<std::string> taken(free.begin(), end);
    free.erase(free.begin(), end);
    return taken;
  }
  return {};
}

std::vector<std::string> Supply::TakeMixed(const Needs& needs) {
  std::map<std::string, std::vector<std::string>> offered;  // by class
  size_t count = 0, rounds = 0;
  for (const Class* each : Usable(needs)) {
    if (!each->held_for.empty() || each->free.empty()) continue;
    std::vector<std::string>& names = offered[each->name];
    names = each->free;
    if (const auto its = needs.classes.find(each->name); its != needs.classes.end()) {
      names.resize(std::min(names.size(), its->second));
    }
    count += names.size();
    rounds = std::max(rounds, names.size());
  }
  if (count < needs.least || offered.size() < needs.classes.size()) return {};
  std::vector<std::string> taken;
  for (size_t round = 0; round < rounds; ++round) {
    for (const auto& [name, names] : offered) {
      if (round < names.size() && taken.size() < needs.most) taken.push_back(names[round]);
    }
  }
  std::ranges::sort(taken);
  for (Class& each : classes_) {
    std::erase_if(each.free,
                  [&](const auto& name) { return std::ranges::binary_search(taken, name); });
  }
  return taken;
}

std::string Supply::HeldFor(const Needs& needs) const {
  const Class* earliest = nullptr;
  for (const Class* each : Usable(needs)) {
    if (each->held_for.empty() || (needs.classes.empty() && each->attached == 0)) continue;
    if (earliest == nullptr || each->held_since < earliest->held_since) earliest = each;
  }
  return earliest == nullptr ? all_held_for_ : earliest->held_for;
}

void Supply::Hold(const std::string& job, const Needs& needs) {
  ++holders_;
  for (const auto& [name, most] : needs.classes) (void)At(name);  // perhaps nobody is of it
  const std::vector<const Class*> usable = Usable(needs);
  const auto enough = [&](const Class* each) { return each->attached >= needs.least; };
  const bool any = !needs.mixes && std::any_of(usable.begin(), usable.end(), enough);
  for (const Class* each : usable) {
    if (!each->held_for.empty() || (any && !enough(each))) continue;
    Class& held = At(each->name);
    held.held_for = job;
    held.held_since = holders_;
  }
  if (needs.classes.empty() && !any && all_held_for_.empty()) all_held_for_ = job;
}

bool Supply::Held(const std::string& class_name) const {
  return std::any_of(classes_.begin(), classes_.end(), [&](const Class& each) {
    return !each.held_for.empty() && each.name == class_name;
  });
}

Lack Supply::Explain(const Needs& needs) const {
  if (needs.mixes) return ExplainMixed(needs);
  const std::vector<const Class*> usable = Usable(needs);
  const size_t have = usable.empty() ? 0 : usable.front()->free.size();
  const size_t missing = needs.least - have;
  Lack lack;
  lack.reason = fmt::format("needs {} of one numerics class, {} {} attached and free: {} missing{}",
                            Plural(needs.least, "worker"), have, have == 1 ? "is" : "are", missing,
                            DescribeBusy(fleet_));
  size_t others = 0;
  for (size_t i = 1; i < usable.size(); ++i) others += usable[i]->free.size();
  if (others > 0) {
    lack.reason +=
        fmt::format("; {} more of other numerics classes cannot join them ({} and {} differ: {})",
                    others, usable[0]->free.front(), usable[1]->free.front(),
                    job::Difference(usable[0]->numerics_class, usable[1]->numerics_class));
  }
  if (!usable.empty() && usable.front()->attached >= needs.least) {
    lack.advice.push_back(WaitFor(JobsOf(usable.front()->name, fleet_)));
  }
  lack.advice.push_back(fmt::format("start {}{}", Plural(missing, "more worker"),
                                    have == 0 ? "" : " like " + usable.front()->free.front()));
  if (have > 0) lack.advice.push_back(fmt::format("submit it again with workers.min {}", have));
  if (have + others >= needs.least) {
    lack.advice.emplace_back(
        "submit it again with workers.mix fixed: workers of all classes share it, and the result "
        "belongs to how they do");
  }
  return lack;
}

Lack Supply::ExplainMixed(const Needs& needs) const {
  size_t have = 0;
  std::set<std::string> missing, jobs;
  for (const auto& [name, most] : needs.classes) missing.insert(name);
  for (const Class* each : Usable(needs)) {
    have += each->free.size();
    if (!each->free.empty()) {
      missing.erase(each->name);
    } else {
      jobs.merge(JobsOf(each->name, fleet_));
    }
  }
  Lack lack;
  lack.reason = fmt::format(
      "needs {}, {} {} attached and free{}{}", Plural(needs.least, "worker"), have,
      have == 1 ? "is" : "are",
      missing.empty() ? ""
                      : fmt::format("; of its class map {} has none", fmt::join(missing, " and ")),
      DescribeBusy(fleet_));
  if (!jobs.empty()) lack.advice.push_back(WaitFor(jobs));
  lack.advice.push_back(missing.empty()
                            ? fmt::format("start {}", Plural(needs.least - have, "more worker"))
                            : fmt::format("start a worker of {} (`ringctl workers` shows classes)",
                                          fmt::join(missing, ", and one of ")));
  return lack;
}

std::vector<std::string> FindJoiners(const Run& run, const Fleet& fleet, const Supply* supply,
                                     Now now) {
  std::vector<std::string> names;
  size_t room = run.room();
  if (room == 0) return names;
  std::map<std::string, size_t> rooms = run.rooms();
  for (const auto& [name, worker] : fleet.workers()) {
    if (room == 0) break;
    const auto its = rooms.find(worker.class_name);
    if (its == rooms.end() || its->second == 0 || !worker.free()) continue;
    if (run.Barred(worker.attach, now)) continue;
    if (supply != nullptr && supply->Held(worker.class_name)) continue;
    names.push_back(name);
    --its->second;
    --room;
  }
  return names;
}

}  // namespace ringmaster::coordinator
