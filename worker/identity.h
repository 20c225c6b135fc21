// Who this worker is: host, incarnation, build id, and the highest coordinator term that it obeyed,
// which outlives the process. Thread-compatible; loop thread after start-up.
#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"

namespace ringmaster::worker {

// The host's name, as gethostname gives it; "worker" when it has none.
[[nodiscard]] std::string HostName();

// 128 random bits as 32 hex digits: one a process start.
[[nodiscard]] std::string RandomIncarnation();

// GNU build id of the running program as hex; "unknown" when it was linked without one.
[[nodiscard]] std::string BuildId();

// The highest term in `state_dir`; 0 when there is none yet. DATA_LOSS: the file is not a number.
[[nodiscard]] StatusOr<uint64_t> LoadHighestTerm(const std::string& state_dir);
// Durable when it returns OK.
[[nodiscard]] Status StoreHighestTerm(const std::string& state_dir, uint64_t term);

}  // namespace ringmaster::worker
