// Who this worker is: host and incarnation. Thread-safe (free functions).
#pragma once

#include <string>

namespace ringmaster::worker {

// The host's name, as gethostname gives it; "worker" when it has none.
[[nodiscard]] std::string HostName();

// 128 random bits as 32 hex digits: one a process start.
[[nodiscard]] std::string RandomIncarnation();

}  // namespace ringmaster::worker
