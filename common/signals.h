// SIGINT and SIGTERM as ordinary control flow: blocked before the first thread starts, then waited
// for by main. Main thread only.
#pragma once

#include <chrono>
#include <optional>

namespace ringmaster {

// Blocks SIGINT, SIGTERM and SIGPIPE for this thread and all that it starts. Call first in main.
void BlockSignals();

// Waits for SIGINT or SIGTERM; nullopt after `timeout`. Needs BlockSignals().
[[nodiscard]] std::optional<int> WaitForSignal(std::chrono::milliseconds timeout);

}  // namespace ringmaster
