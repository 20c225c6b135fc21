// Which free workers a job starts on, or why it waits. Pure; thread-safe (a free function).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/logic/fleet.h"
#include "coordinator/logic/run.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::coordinator {

// Either `workers` (names in ring order) or a reason to wait and what would make the job start, the
// smallest change first.
struct Placement {
  std::vector<std::string> workers;
  std::string reason;
  std::vector<std::string> advice;
};

// A gang: at least workers.min free workers of one numerics class, at most min(workers.max, V) of
// them. Of several classes the one with most free workers is taken (ties: the one of the first
// name), or that of `resolved`, when the job has one; in it, workers by name. `spec` is valid.
[[nodiscard]] Placement Place(const v1::JobSpec& spec,
                              const std::optional<v1::ResolvedJob>& resolved, const Fleet& fleet);

// Free workers that a running or waiting job may have beside its own, by name: of its numerics
// class and not barred from it, as many as it has room for.
[[nodiscard]] std::vector<std::string> FindJoiners(const Run& run, const Fleet& fleet, Now now);

}  // namespace ringmaster::coordinator
