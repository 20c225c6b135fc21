// Which free workers a job starts on, or why it waits. Pure; thread-safe (a free function).
#pragma once

#include <optional>
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

// What the fleet has for the queue, by numerics class, and for which job the workers of a class are
// held: no later job gets them, so that none overtakes another by taking what that one waits for.
// Made for one walk along the queue, first job first; the fleet outlives it.
class Supply {
 public:
  using Resolved = std::optional<v1::ResolvedJob>;

  explicit Supply(const Fleet& fleet);

  // A gang, its names in ring order: at least workers.min free workers of one numerics class that
  // is held for nobody, at most min(workers.max, V) of them. Of several classes the one with most
  // free workers is taken (ties: the one of the first name), or that of `resolved`, when the job
  // has one; in it, workers by name. They are not offered again. Empty: it does not fit. `spec` is
  // valid.
  [[nodiscard]] std::vector<std::string> Take(const v1::JobSpec& spec, const Resolved& resolved);

  // The earliest job for which workers are held that this one might use; empty: there is none.
  [[nodiscard]] std::string HeldFor(const Resolved& resolved) const;
  // Of a job that does not fit.
  [[nodiscard]] Lack Explain(const v1::JobSpec& spec, const Resolved& resolved) const;
  // `job` does not fit. The class that it is resolved for is held for it; of one that has none yet
  // every class with enough workers once they are free, and when none has so many, every class.
  void Hold(const std::string& job, const v1::JobSpec& spec, const Resolved& resolved);
  [[nodiscard]] bool Held(const v1::NumericsClass& numerics_class) const;

 private:
  struct Class {
    v1::NumericsClass numerics_class;
    std::vector<std::string> free;  // by name
    size_t attached = 0;            // and not draining: free, or free when their jobs end
    std::string held_for;           // a job; empty: nobody
    size_t held_since = 0;          // the place of that job among those that hold one
  };
  Class& At(const v1::NumericsClass& numerics_class);
  // Classes that the job might use, those with most free workers first.
  [[nodiscard]] std::vector<const Class*> Usable(const Resolved& resolved) const;

  const Fleet& fleet_;
  std::vector<Class> classes_;  // few
  std::string all_held_for_;    // a job: every class is held for it that is for no other one
  size_t holders_ = 0;
};

// Free workers that a running or waiting job may have beside its own, by name: of its numerics
// class and not barred from it, as many as it has room for.
[[nodiscard]] std::vector<std::string> FindJoiners(const Run& run, const Fleet& fleet, Now now);

}  // namespace ringmaster::coordinator
