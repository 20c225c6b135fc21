// Control messages in a few words, for the event log. Thread-safe (free functions).
#pragma once

#include <string>

#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::sim {

[[nodiscard]] std::string Describe(const v1::WorkerMessage& message);
[[nodiscard]] std::string Describe(const v1::CoordinatorMessage& message);
[[nodiscard]] std::string Describe(const v1::Generation& generation);

}  // namespace ringmaster::sim
