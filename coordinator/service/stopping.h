// What a call is told that the coordinator has no more room or time for. Thread-safe (free
// functions).
#pragma once

#include "common/status.h"

namespace ringmaster::coordinator {

// For one that a Loop did not take: it has stopped, or its queue is full.
[[nodiscard]] inline Status Stopping() {
  return absl::UnavailableError("the coordinator is stopping or overloaded; try again");
}

}  // namespace ringmaster::coordinator
