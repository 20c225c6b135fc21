// Which free workers a job starts on, or why it waits. Pure; thread-safe (a free function).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/logic/fleet.h"
#include "coordinator/logic/run/run.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::coordinator {

// Why a job waits, and what would make it start, the smallest change first.
struct Lack {
  std::string reason;
  std::vector<std::string> advice;
};

// Whom a job needs before it can start.
struct Needs {
  explicit Needs(const JobRecord& job);

  size_t least = 1, most = 1;  // workers in all
  bool mixes = false;          // workers of several classes: at least one of each of `classes`
  // What is known of its class map: of each class, by name, at most so many workers. Empty:
  // nothing.
  std::map<std::string, size_t> classes;
  std::map<std::string, v1::NumericsClass> numerics;  // of those whose map says it
  std::string interpreter;  // that each worker has; empty: it runs no script

  [[nodiscard]] bool Uses(const std::string& name) const {
    return classes.empty() || classes.contains(name);
  }
  [[nodiscard]] bool Uses(const Worker& worker) const {
    return Uses(worker.class_name) && HasInterpreter(worker.attach, interpreter);
  }
};

// What the fleet has for the queue, by numerics class and by the interpreters that workers have,
// and for which job the workers of such a group are held: no later job gets them, so that none
// overtakes another by taking what that one waits for. Made for one walk along the queue, first job
// first; the fleet outlives it.
class Supply {
 public:
  explicit Supply(const Fleet& fleet);

  // A gang, its names in ring order, of free workers of classes that are held for nobody: at least
  // needs.least, at most needs.most. Of one class: of several that it might use the one with most
  // free workers (ties: the one of the first name); in it, workers by name. Of a job that mixes
  // classes: one of each class, then one more of each as long as there are any, by name. They are
  // not offered again. Empty: it does not fit.
  [[nodiscard]] std::vector<std::string> Take(const Needs& needs);

  // The earliest job for which workers are held that this one might use; empty: there is none.
  [[nodiscard]] std::string HeldFor(const Needs& needs) const;
  // Of a job that does not fit.
  [[nodiscard]] Lack Explain(const Needs& needs) const;
  // `job` does not fit. The classes that it is resolved for are held for it, and all that a job
  // that mixes them might use; of one that has none yet every class with enough workers once they
  // are free, and when none has so many, every class. Of a class those alone that have its
  // interpreter.
  void Hold(const std::string& job, const Needs& needs);
  [[nodiscard]] bool Held(const Worker& worker) const;

 private:
  // Workers of one class that have the same interpreters: a job that may use one may use each.
  struct Group {
    std::string class_name;
    std::set<std::string> interpreters;
    v1::NumericsClass numerics_class;
    std::vector<std::string> free;  // by name
    size_t attached = 0;            // and not draining: free, or free when their jobs end
    std::string like;               // one of them; else one that drains
    std::string held_for;           // a job; empty: nobody
    size_t held_since = 0;          // the place of that job among those that hold one
  };
  // Groups of one class that a job might use; never empty.
  struct Pool {
    std::vector<const Group*> groups;
    size_t free = 0, attached = 0;  // of all of them
    [[nodiscard]] const std::string& class_name() const { return groups.front()->class_name; }
    [[nodiscard]] std::vector<std::string> Free() const;  // by name
    [[nodiscard]] std::string FirstFree() const;          // empty: none is
    [[nodiscard]] std::string Like() const;
  };
  enum class Which : uint8_t { kAll, kHeldForNobody };
  Group& At(const std::string& class_name, const std::set<std::string>& interpreters);
  // Those with most free workers first.
  [[nodiscard]] std::vector<Pool> Usable(const Needs& needs, Which which = Which::kAll) const;
  void Remove(const std::vector<std::string>& taken);  // by name
  [[nodiscard]] std::vector<std::string> TakeMixed(const Needs& needs);
  [[nodiscard]] Lack ExplainMixed(const Needs& needs) const;
  [[nodiscard]] std::string DescribeOthers(const Needs& needs) const;

  const Fleet& fleet_;
  std::vector<Group> groups_;  // few
  // By interpreter, empty for any: the job for which every group is held that is for no other one.
  std::map<std::string, std::string> all_held_for_;
  size_t holders_ = 0;
};

// What would bring so many more workers of these classes with this interpreter (empty: any), the
// smallest change first: a drain that ends, workers that are free soon, the job with the fewest of
// them that has enough. `own`: the job that lacks them; empty: it has none. Empty: nobody who is
// attached can help.
struct Wanted {
  std::set<std::string> classes;
  std::string interpreter;
};
[[nodiscard]] std::vector<std::string> FindHelp(const Fleet& fleet, const Wanted& wanted,
                                                size_t missing, const std::string& own);

// What would let a WAITING job go on, the smallest change first.
[[nodiscard]] std::vector<std::string> AdviseWaiting(const Run& run, const Fleet& fleet, Now now);

// Free workers that a running or waiting job may have beside its own, by name: of a class of its
// map and not barred from it, as many as it has room for. `supply`: none of a class that is held
// for another job; nullptr: the job comes first.
[[nodiscard]] std::vector<std::string> FindJoiners(const Run& run, const Fleet& fleet,
                                                   const Supply* supply, Now now);

}  // namespace ringmaster::coordinator
