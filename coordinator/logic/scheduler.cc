#include "coordinator/logic/scheduler.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "common/job/class_map.h"
#include "common/job/resolve.h"
#include "common/job/script_files.h"

namespace ringmaster::coordinator {
namespace {

std::string Plural(size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// "; 2 are busy with j0001, j0002"
std::string DescribeBusy(const Fleet& fleet, const std::string& interpreter) {
  std::map<std::string, size_t> jobs;
  size_t busy = 0, ending = 0, measured = 0;
  for (const auto& [name, worker] : fleet.workers()) {
    if (!HasInterpreter(worker.attach, interpreter)) continue;
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

// Workers that the job might use but for its interpreter, by name.
std::vector<std::string> WithoutInterpreter(const Fleet& fleet, const Needs& needs) {
  std::vector<std::string> names;
  for (const auto& [name, worker] : fleet.workers()) {
    if (needs.Uses(worker.class_name) && !needs.Uses(worker)) names.push_back(name);
  }
  return names;
}

// What would let the first of them take part.
void AdviseInterpreter(const std::vector<std::string>& without, const std::string& interpreter,
                       Lack& lack) {
  if (without.empty()) return;
  lack.advice.push_back(
      fmt::format("start {} again with --python {}=PATH, of a Python that has what the script "
                  "imports",
                  without.front(), interpreter));
}

// `; a, b and 3 more have no interpreter called conda`
std::string DescribeWithout(std::vector<std::string> names, const std::string& interpreter) {
  constexpr size_t kMostNames = 3;
  if (names.empty()) return "";
  const size_t more = names.size() > kMostNames ? names.size() - kMostNames : 0;
  const bool one = names.size() == 1;
  names.resize(names.size() - more);
  return fmt::format("; {}{} {} no interpreter called {}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "", one ? "has" : "have",
                     interpreter);
}

// ` with the interpreter conda`
std::string WithInterpreter(const std::string& name) {
  return name.empty() ? "" : " with the interpreter " + name;
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
  if (spec.has_script()) interpreter = job::InterpreterOf(spec.script());
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

std::vector<std::string> Supply::Pool::Free() const {
  std::vector<std::string> names;
  for (const Group* group : groups) {
    names.insert(names.end(), group->free.begin(), group->free.end());
  }
  std::ranges::sort(names);
  return names;
}

std::string Supply::Pool::FirstFree() const {
  std::string first;
  for (const Group* group : groups) {
    if (group->free.empty() || (!first.empty() && first < group->free.front())) continue;
    first = group->free.front();
  }
  return first;
}

std::string Supply::Pool::Like() const {
  for (const Group* group : groups) {
    if (group->attached > 0) return group->like;
  }
  return groups.front()->like;
}

Supply::Supply(const Fleet& fleet) : fleet_(fleet) {
  for (const auto& [name, worker] : fleet.workers()) {
    const auto& interpreters = worker.attach.interpreters();
    Group& its = At(worker.class_name, {interpreters.begin(), interpreters.end()});
    its.numerics_class = worker.attach.numerics_class();
    if (worker.free()) its.free.push_back(name);
    if (!worker.draining && its.attached++ == 0) its.like = name;
    if (its.like.empty()) its.like = name;
  }
}

Supply::Group& Supply::At(const std::string& class_name,
                          const std::set<std::string>& interpreters) {
  for (Group& each : groups_) {
    if (each.class_name == class_name && each.interpreters == interpreters) return each;
  }
  Group& added = groups_.emplace_back();
  added.class_name = class_name;
  added.interpreters = interpreters;
  return added;
}

std::vector<Supply::Pool> Supply::Usable(const Needs& needs, Which which) const {
  std::vector<Pool> pools;
  for (const Group& each : groups_) {
    const bool lacks = !needs.interpreter.empty() && !each.interpreters.contains(needs.interpreter);
    if (lacks || !needs.Uses(each.class_name)) continue;
    if (which == Which::kHeldForNobody && !each.held_for.empty()) continue;
    auto pool = std::ranges::find(pools, each.class_name, &Pool::class_name);
    if (pool == pools.end()) pool = pools.insert(pool, Pool{});
    pool->groups.push_back(&each);
    pool->free += each.free.size();
    pool->attached += each.attached;
  }
  // Of two equally large classes the one of the first free name stays in front.
  std::stable_sort(pools.begin(), pools.end(), [](const Pool& a, const Pool& b) {
    if (a.free != b.free) return a.free > b.free;
    return a.free > 0 && a.FirstFree() < b.FirstFree();
  });
  return pools;
}

void Supply::Remove(const std::vector<std::string>& taken) {
  for (Group& each : groups_) {
    std::erase_if(each.free,
                  [&](const auto& name) { return std::ranges::binary_search(taken, name); });
  }
}

std::vector<std::string> Supply::Take(const Needs& needs) {
  if (needs.mixes) return TakeMixed(needs);
  const std::vector<Pool> pools = Usable(needs, Which::kHeldForNobody);
  if (pools.empty() || pools.front().free < needs.least) return {};
  std::vector<std::string> taken = pools.front().Free();
  taken.resize(std::min(taken.size(), needs.most));
  Remove(taken);
  return taken;
}

std::vector<std::string> Supply::TakeMixed(const Needs& needs) {
  std::map<std::string, std::vector<std::string>> offered;  // by class
  size_t count = 0, rounds = 0;
  for (const Pool& each : Usable(needs, Which::kHeldForNobody)) {
    if (each.free == 0) continue;
    std::vector<std::string>& names = offered[each.class_name()];
    names = each.Free();
    if (const auto its = needs.classes.find(each.class_name()); its != needs.classes.end()) {
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
  Remove(taken);
  return taken;
}

std::string Supply::HeldFor(const Needs& needs) const {
  const Group* earliest = nullptr;
  for (const Pool& pool : Usable(needs)) {
    for (const Group* each : pool.groups) {
      if (each->held_for.empty() || (needs.classes.empty() && each->attached == 0)) continue;
      if (earliest == nullptr || each->held_since < earliest->held_since) earliest = each;
    }
  }
  if (earliest != nullptr) return earliest->held_for;
  for (const std::string& interpreter : {needs.interpreter, std::string()}) {
    const auto all = all_held_for_.find(interpreter);
    if (all != all_held_for_.end()) return all->second;
  }
  return "";
}

void Supply::Hold(const std::string& job, const Needs& needs) {
  ++holders_;
  for (const auto& [name, most] : needs.classes) {
    const auto is_of = [&its = name](const Pool& pool) { return pool.class_name() == its; };
    if (std::ranges::any_of(Usable(needs), is_of)) continue;
    std::set<std::string> interpreters;  // nobody is there whom it could use
    if (!needs.interpreter.empty()) interpreters.insert(needs.interpreter);
    (void)At(name, interpreters);
  }
  const std::vector<Pool> usable = Usable(needs);
  const auto enough = [&](const Pool& each) { return each.attached >= needs.least; };
  const bool any = !needs.mixes && std::ranges::any_of(usable, enough);
  for (const Pool& pool : usable) {
    if (any && !enough(pool)) continue;
    for (const Group* each : pool.groups) {
      if (!each->held_for.empty()) continue;
      Group& held = At(each->class_name, each->interpreters);
      held.held_for = job;
      held.held_since = holders_;
    }
  }
  if (needs.classes.empty() && !any) all_held_for_.emplace(needs.interpreter, job);
}

bool Supply::Held(const Worker& worker) const {
  const auto& its = worker.attach.interpreters();
  return std::ranges::any_of(groups_, [&](const Group& each) {
    return !each.held_for.empty() && each.class_name == worker.class_name &&
           each.interpreters == std::set<std::string>(its.begin(), its.end());
  });
}

std::vector<std::string> FindHelp(const Fleet& fleet, const Wanted& wanted, size_t missing,
                                  const std::string& own) {
  std::vector<std::string> drained;
  Jobs jobs;
  size_t soon = 0;
  for (const auto& [name, worker] : fleet.workers()) {
    if (!wanted.classes.contains(worker.class_name)) continue;
    if (!HasInterpreter(worker.attach, wanted.interpreter)) continue;
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
  for (const Group& each : groups_) {
    if (each.like.empty() || numerics == needs.numerics.end()) continue;
    if (each.class_name == wanted) continue;  // it lacks the interpreter
    return text + fmt::format(", and {} is of another one ({})", each.like,
                              job::Difference(numerics->second, each.numerics_class));
  }
  return text;
}

Lack Supply::Explain(const Needs& needs) const {
  if (needs.mixes) return ExplainMixed(needs);
  const std::vector<Pool> usable = Usable(needs);
  const size_t have = usable.empty() ? 0 : usable.front().free;
  const size_t missing = needs.least - have;
  const std::vector<std::string> without = WithoutInterpreter(fleet_, needs);
  Lack lack;
  lack.reason =
      fmt::format("needs {} of one numerics class{}, {} {} attached and free: {} missing{}{}",
                  Plural(needs.least, "worker"), WithInterpreter(needs.interpreter), have,
                  have == 1 ? "is" : "are", missing, DescribeBusy(fleet_, needs.interpreter),
                  DescribeWithout(without, needs.interpreter));
  const std::string like = have > 0         ? usable.front().FirstFree()
                           : usable.empty() ? ""
                                            : usable.front().Like();
  if (like.empty()) lack.reason += DescribeOthers(needs);
  size_t others = 0;
  for (size_t i = 1; i < usable.size(); ++i) others += usable[i].free;
  if (others > 0) {
    lack.reason +=
        fmt::format("; {} more of other numerics classes cannot join them ({} and {} differ: {})",
                    others, usable[0].FirstFree(), usable[1].FirstFree(),
                    job::Difference(usable[0].groups.front()->numerics_class,
                                    usable[1].groups.front()->numerics_class));
  }
  for (const Pool& each : usable) {
    lack.advice =
        FindHelp(fleet_, {{each.class_name()}, needs.interpreter}, needs.least - each.free, "");
    if (!lack.advice.empty()) break;
  }
  AdviseInterpreter(without, needs.interpreter, lack);
  lack.advice.push_back(fmt::format(
      "start {}{}", Plural(missing, "more worker"),
      !like.empty() ? " like " + like
      : needs.classes.empty()
          ? WithInterpreter(needs.interpreter)
          : " of " + needs.classes.begin()->first + WithInterpreter(needs.interpreter)));
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
  for (const Pool& each : Usable(needs)) {
    const std::string& name = each.class_name();
    const auto its = needs.classes.find(name);
    const size_t most = its == needs.classes.end() ? each.free : its->second;
    have += std::min(each.free, most);
    if (each.free > 0) missing.erase(name);
    if (its == needs.classes.end()) with_room.insert(name);
    if (its != needs.classes.end() && each.free >= most) with_room.erase(name);
  }
  const std::vector<std::string> without = WithoutInterpreter(fleet_, needs);
  Lack lack;
  lack.reason = fmt::format(
      "needs {}{}, {} {} attached and free{}{}{}", Plural(needs.least, "worker"),
      WithInterpreter(needs.interpreter), have, have == 1 ? "is" : "are",
      missing.empty() ? ""
                      : fmt::format("; of its class map {} has none", fmt::join(missing, " and ")),
      DescribeBusy(fleet_, needs.interpreter), DescribeWithout(without, needs.interpreter));
  for (const std::string& name : missing) {
    for (std::string& line : FindHelp(fleet_, {{name}, needs.interpreter}, 1, "")) {
      lack.advice.push_back(std::move(line));
    }
  }
  AdviseInterpreter(without, needs.interpreter, lack);
  if (!missing.empty()) {
    lack.advice.push_back(fmt::format("start a worker of {} (`ringctl workers` shows classes)",
                                      fmt::join(missing, ", and one of ")));
    return lack;
  }
  const size_t more = needs.least - std::min(have, needs.least);
  std::vector<std::string> help = FindHelp(fleet_, {with_room, needs.interpreter}, more, "");
  lack.advice.insert(lack.advice.begin(), help.begin(), help.end());
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
      const bool fits = worker.free() && lacking.classes.contains(worker.class_name) &&
                        HasInterpreter(worker.attach, run.interpreter());
      if (fits && barred.empty() && run.Barred(worker.attach, now)) barred = name;
    }
    if (!barred.empty()) {
      advice.push_back(fmt::format(
          "start {0} again, which was left out: the new process may join it at once, {0} as it is "
          "after a while",
          barred));
    }
    const Wanted wanted = {lacking.classes, run.interpreter()};
    for (std::string& line : FindHelp(fleet, wanted, lacking.workers, run.job_id())) {
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
  const std::string interpreter = run.interpreter();
  for (const auto& [name, worker] : fleet.workers()) {
    if (room == 0) break;
    const auto its = rooms.find(worker.class_name);
    if (its == rooms.end() || its->second == 0 || !worker.free()) continue;
    if (run.Barred(worker.attach, now)) continue;
    if (!HasInterpreter(worker.attach, interpreter)) continue;
    if (supply != nullptr && supply->Held(worker)) continue;
    names.push_back(name);
    --its->second;
    --room;
  }
  return names;
}

}  // namespace ringmaster::coordinator
