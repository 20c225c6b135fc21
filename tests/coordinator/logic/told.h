// What the logic says, as words of a story. Thread-safe (free functions).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coordinator/logic/action.h"
#include "coordinator/logic/logic.h"
#include "ringmaster/v1/fleet.pb.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::coordinator {

// `1.2`, and back.
[[nodiscard]] std::string PrintGeneration(const v1::Generation& generation);
[[nodiscard]] v1::Generation ParseGeneration(const std::string& text);

[[nodiscard]] std::string Told(const v1::CoordinatorMessage& m);
[[nodiscard]] std::string Told(const v1::Regroup& regroup);
// Only of a phase that lasts: the notes have those that ended.
[[nodiscard]] std::string Told(const v1::StartPhase& phase);
// State, step, checkpoints, and phases of a start that last.
[[nodiscard]] std::string Told(const v1::JobStatus& status, bool phases);
// Epochs with their values, and which steps.
[[nodiscard]] std::string Told(const SaveMetrics& save);
// ` j0001,j0002`
[[nodiscard]] std::string Told(const RemoveJobs& removal);
// `OK`, or its code, word and message; of `results` by job, as they stand in it, no story is told.
[[nodiscard]] std::string Told(const Refusal& refusal,
                               const std::map<std::string, std::string>& results);
// ` a=BUSY b=FREE`, with what slows its job; of more than four in ranges: ` a..f=BUSY g=FREE`.
[[nodiscard]] std::string Told(const v1::ListWorkersResponse& workers);
// Of its status, what other lines do not show.
[[nodiscard]] std::vector<std::string> Told(const JobView& view);

// Adds how often runs took each of kTransitions; to null nothing.
void CountPhases(const Logic& logic, std::vector<uint64_t>* taken);

}  // namespace ringmaster::coordinator
