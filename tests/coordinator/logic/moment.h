// Moments of a simulated clock. Thread-safe (free functions).
#pragma once

#include <chrono>
#include <cstdint>

#include "coordinator/logic/event.h"

namespace ringmaster::coordinator {

[[nodiscard]] inline Now AtMs(int64_t ms) { return {std::chrono::milliseconds(ms), 0}; }

}  // namespace ringmaster::coordinator
