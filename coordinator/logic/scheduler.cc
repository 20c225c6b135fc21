#include "coordinator/logic/scheduler.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "common/job/resolve.h"

namespace ringmaster::coordinator {
namespace {

// The jobs that hold workers of a class.
std::set<std::string> JobsOf(const v1::NumericsClass& numerics_class, const Fleet& fleet) {
  std::set<std::string> jobs;
  for (const auto& [name, worker] : fleet.workers()) {
    if (worker.job.empty() || worker.draining) continue;
    if (!job::Difference(numerics_class, worker.attach.numerics_class()).empty()) continue;
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

size_t LeastOf(const v1::JobSpec& spec) { return std::max<size_t>(job::WorkersOf(spec).min(), 1); }

}  // namespace

Supply::Supply(const Fleet& fleet) : fleet_(fleet) {
  for (const auto& [name, worker] : fleet.workers()) {
    Class& its = At(worker.attach.numerics_class());
    if (worker.free()) its.free.push_back(name);
    if (!worker.draining) ++its.attached;
  }
}

Supply::Class& Supply::At(const v1::NumericsClass& numerics_class) {
  for (Class& each : classes_) {
    if (job::Difference(each.numerics_class, numerics_class).empty()) return each;
  }
  return classes_.emplace_back(Class{numerics_class, {}, 0, "", 0});
}

std::vector<const Supply::Class*> Supply::Usable(const Resolved& resolved) const {
  std::vector<const Class*> usable;
  for (const Class& each : classes_) {
    if (resolved &&
        !job::Difference(resolved->result().numerics_class(), each.numerics_class).empty()) {
      continue;
    }
    usable.push_back(&each);
  }
  // Of two equally large classes the one of the first free name stays in front.
  std::stable_sort(usable.begin(), usable.end(), [](const Class* a, const Class* b) {
    if (a->free.size() != b->free.size()) return a->free.size() > b->free.size();
    return !a->free.empty() && a->free.front() < b->free.front();
  });
  return usable;
}

std::vector<std::string> Supply::Take(const v1::JobSpec& spec, const Resolved& resolved) {
  const size_t most = std::min<size_t>(job::WorkersOf(spec).max(), job::ShardsOf(spec));
  for (const Class* each : Usable(resolved)) {
    if (!each->held_for.empty()) continue;
    if (each->free.size() < LeastOf(spec)) break;
    std::vector<std::string>& free = At(each->numerics_class).free;
    const auto end = free.begin() + static_cast<long>(std::min(free.size(), most));
    std::vector<std::string> taken(free.begin(), end);
    free.erase(free.begin(), end);
    return taken;
  }
  return {};
}

std::string Supply::HeldFor(const Resolved& resolved) const {
  const Class* earliest = nullptr;
  for (const Class* each : Usable(resolved)) {
    if (each->held_for.empty() || (!resolved && each->attached == 0)) continue;
    if (earliest == nullptr || each->held_since < earliest->held_since) earliest = each;
  }
  return earliest == nullptr ? all_held_for_ : earliest->held_for;
}

void Supply::Hold(const std::string& job, const v1::JobSpec& spec, const Resolved& resolved) {
  ++holders_;
  if (resolved) (void)At(resolved->result().numerics_class());  // perhaps nobody is of it
  const std::vector<const Class*> usable = Usable(resolved);
  const auto enough = [&](const Class* each) { return each->attached >= LeastOf(spec); };
  const bool any = std::any_of(usable.begin(), usable.end(), enough);
  for (const Class* each : usable) {
    if (!each->held_for.empty() || (any && !enough(each))) continue;
    Class& held = At(each->numerics_class);
    held.held_for = job;
    held.held_since = holders_;
  }
  if (!resolved && !any && all_held_for_.empty()) all_held_for_ = job;
}

bool Supply::Held(const v1::NumericsClass& numerics_class) const {
  return std::any_of(classes_.begin(), classes_.end(), [&](const Class& each) {
    return !each.held_for.empty() && job::Difference(each.numerics_class, numerics_class).empty();
  });
}

Lack Supply::Explain(const v1::JobSpec& spec, const Resolved& resolved) const {
  const size_t least = LeastOf(spec);
  const std::vector<const Class*> usable = Usable(resolved);
  const size_t have = usable.empty() ? 0 : usable.front()->free.size();
  const size_t missing = least - have;
  Lack lack;
  lack.reason = fmt::format("needs {} of one numerics class, {} {} attached and free: {} missing{}",
                            Plural(least, "worker"), have, have == 1 ? "is" : "are", missing,
                            DescribeBusy(fleet_));
  size_t others = 0;
  for (size_t i = 1; i < usable.size(); ++i) others += usable[i]->free.size();
  if (others > 0) {
    lack.reason +=
        fmt::format("; {} more of other numerics classes cannot join them ({} and {} differ: {})",
                    others, usable[0]->free.front(), usable[1]->free.front(),
                    job::Difference(usable[0]->numerics_class, usable[1]->numerics_class));
  }
  if (!usable.empty() && usable.front()->attached >= least) {
    std::string names;
    for (const std::string& job : JobsOf(usable.front()->numerics_class, fleet_)) {
      names += (names.empty() ? "" : " and ") + job;
    }
    lack.advice.push_back(names.empty() ? "wait: busy workers become free"
                                        : fmt::format("wait until {} ended, or cancel it", names));
  }
  lack.advice.push_back(fmt::format("start {}{}", Plural(missing, "more worker"),
                                    have == 0 ? "" : " like " + usable.front()->free.front()));
  if (have > 0) lack.advice.push_back(fmt::format("submit it again with workers.min {}", have));
  return lack;
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
