// What the logic says, as words of a story. Thread-safe (free functions).
#pragma once

#include <string>

#include "ringmaster/v1/fleet.pb.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::coordinator {

// `1.2`, and back.
[[nodiscard]] std::string PrintGeneration(const v1::Generation& generation);
[[nodiscard]] v1::Generation ParseGeneration(const std::string& text);

[[nodiscard]] std::string Told(const v1::CoordinatorMessage& m);
[[nodiscard]] std::string Told(const v1::Regroup& regroup);

}  // namespace ringmaster::coordinator
