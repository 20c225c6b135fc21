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

using Jobs = std::map<std::string, size_t>;  // and how many workers each has

// The job with the fewest workers that has enough, else the largest ones that have enough together;
// empty: all have not.
std::set<std::string> JobsWith(const Jobs& jobs, size_t missing) {
  std::vector<std::pair<size_t, std::string>> by_size;
  for (const auto& [job, count] : jobs) by_size.emplace_back(count, job);
  std::ranges::sort(by_size);
  for (const auto& [count, job] : by_size) {
    if (count >= missing) return {job};
  }
  std::set<std::string> chosen;
  size_t found = 0;
  for (auto each = by_size.rbegin(); each != by_size.rend() && found < missing; ++each) {
    found += each->first;
    chosen.insert(each->second);
  }
  return found >= missing ? chosen : std::set<std::string>();
}

}  // namespace

Needs::Needs(const JobRecord& job) {
  const v1::JobSpec& spec = job.status.spec();
  const v1::WorkerRange workers = job::WorkersOf(spec);
  least = std::max<size_t>(workers.min(), 1);
  most = std::min<size_t>(workers.max(), job::ShardsOf(spec));
  if (spec.has_script() && job.resolved) {  // which its attach may have said
    most = std::min<size_t>(job.resolved->workers().max(), job.resolved->result().shards());
  }
  mixes = workers.mix() != v1::MIX_NONE;
  if (job.resolved) {
    const v1::ResultSpec& result = job.resolved->result();
    // A job like another one begins where that one began.
    const v1::ClassMap& map =
        job.status.like_job().empty() ? job::NewestMap(result) : result.class_maps(0);
    for (const v1::MappedClass& each : map.classes()) {
      classes[each.class_()] = each.shards();
      if (each.has_numerics()) numerics[each.class_()] = each.numerics();
    }
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
    if (!worker.draining && its.attached++ == 0) its.like = name;
    if (its.like.empty()) its.like = name;
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

std::vector<std::string> FindHelp(const Fleet& fleet, const std::set<std::string>& classes,
                                  size_t missing, const std::string& own) {
  std::vector<std::string> drained;
  Jobs jobs;
  size_t soon = 0;
  for (const auto& [name, worker] : fleet.workers()) {
    if (!classes.contains(worker.class_name)) continue;
    const bool others = !worker.job.empty() && worker.job.value() != own;
    if (worker.draining) {
      if (!others && !worker.leaving) drained.push_back(name);
    } else if (others) {
      ++jobs[worker.job.value()];
    } else if (worker.releasing || worker.measuring) {
      ++soon;
    }
  }
  std::vector<std::string> help;
  if (drained.size() >= missing) {
    drained.resize(missing);
    help.push_back(fmt::format("end the drain of {}: `ringctl drain {} --resume`",
                               fmt::join(drained, " and "),
                               fmt::join(drained, " --resume` and `ringctl drain ")));
  }
  if (soon >= missing) {
    help.emplace_back("wait: busy workers become free");
  } else if (const auto chosen = JobsWith(jobs, missing - soon); !chosen.empty()) {
    help.push_back(fmt::format("wait until {} ended, or cancel {}", fmt::join(chosen, " and "),
                               chosen.size() == 1 ? "it" : "them"));
  }
  return help;
}

// Workers are there, and none is of a class that the job is made for.
std::string Supply::DescribeOthers(const Needs& needs) const {
  if (needs.classes.empty()) return "";
  const std::string& wanted = needs.classes.begin()->first;
  std::string text = fmt::format("; it is made for {}", wanted);
  const auto numerics = needs.numerics.find(wanted);
  for (const Class& each : classes_) {
    if (each.like.empty() || numerics == needs.numerics.end()) continue;
    return text + fmt::format(", and {} is of another one ({})", each.like,
                              job::Difference(numerics->second, each.numerics_class));
  }
  return text;
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
  const std::string like = have > 0         ? usable.front()->free.front()
                           : usable.empty() ? ""
                                            : usable.front()->like;
  if (like.empty()) lack.reason += DescribeOthers(needs);
  size_t others = 0;
  for (size_t i = 1; i < usable.size(); ++i) others += usable[i]->free.size();
  if (others > 0) {
    lack.reason +=
        fmt::format("; {} more of other numerics classes cannot join them ({} and {} differ: {})",
                    others, usable[0]->free.front(), usable[1]->free.front(),
                    job::Difference(usable[0]->numerics_class, usable[1]->numerics_class));
  }
  for (const Class* each : usable) {
    lack.advice = FindHelp(fleet_, {each->name}, needs.least - each->free.size(), "");
    if (!lack.advice.empty()) break;
  }
  lack.advice.push_back(fmt::format("start {}{}", Plural(missing, "more worker"),
                                    !like.empty() ? " like " + like
                                    : needs.classes.empty()
                                        ? ""
                                        : " of " + needs.classes.begin()->first));
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
  std::set<std::string> missing, with_room;  // classes
  for (const auto& [name, most] : needs.classes) {
    missing.insert(name);
    with_room.insert(name);
  }
  for (const Class* each : Usable(needs)) {
    const auto its = needs.classes.find(each->name);
    const size_t most = its == needs.classes.end() ? each->free.size() : its->second;
    have += std::min(each->free.size(), most);
    if (!each->free.empty()) missing.erase(each->name);
    if (its == needs.classes.end()) with_room.insert(each->name);
    if (its != needs.classes.end() && each->free.size() >= most) with_room.erase(each->name);
  }
  Lack lack;
  lack.reason = fmt::format(
      "needs {}, {} {} attached and free{}{}", Plural(needs.least, "worker"), have,
      have == 1 ? "is" : "are",
      missing.empty() ? ""
                      : fmt::format("; of its class map {} has none", fmt::join(missing, " and ")),
      DescribeBusy(fleet_));
  for (const std::string& name : missing) {
    for (std::string& line : FindHelp(fleet_, {name}, 1, ""))
      lack.advice.push_back(std::move(line));
  }
  if (!missing.empty()) {
    lack.advice.push_back(fmt::format("start a worker of {} (`ringctl workers` shows classes)",
                                      fmt::join(missing, ", and one of ")));
    return lack;
  }
  const size_t more = needs.least - std::min(have, needs.least);
  lack.advice = FindHelp(fleet_, with_room, more, "");
  lack.advice.push_back(fmt::format(
      "start {}{}", Plural(more, "more worker"),
      needs.classes.empty() ? "" : fmt::format(" of {}", fmt::join(with_room, " or "))));
  return lack;
}

std::vector<std::string> AdviseWaiting(const Run& run, const Fleet& fleet, Now now) {
  const Run::Lacking lacking = run.FindLacking(now);
  std::vector<std::string> advice;
  if (lacking.workers > 0) {
    std::string barred;
    for (const auto& [name, worker] : fleet.workers()) {
      const bool fits = worker.free() && lacking.classes.contains(worker.class_name);
      if (fits && barred.empty() && run.Barred(worker.attach, now)) barred = name;
    }
    if (!barred.empty()) {
      advice.push_back(fmt::format(
          "start {0} again, which was left out: the new process may join it at once, {0} as it is "
          "after a while",
          barred));
    }
    for (std::string& line : FindHelp(fleet, lacking.classes, lacking.workers, run.job_id())) {
      advice.push_back(std::move(line));
    }
  }
  for (std::string& line : run.Advise(now)) advice.push_back(std::move(line));
  return advice;
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
