// Which free workers a job starts on, or why it waits. Pure; thread-safe (a free function).
#pragma once

#include <string>
#include <vector>

#include "coordinator/logic/fleet.h"
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
// name); in it, workers by name. `spec` is valid.
[[nodiscard]] Placement Place(const v1::JobSpec& spec, const Fleet& fleet);

}  // namespace ringmaster::coordinator
