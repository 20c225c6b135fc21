// The thread of a core, on any backend. Thread-safe (free functions).
#pragma once

#include "common/status.h"
#include "worker/backend/backend.h"

namespace ringmaster {

// Lets the calling thread run on the core's CPUs only; without any it runs anywhere.
// INVALID_ARGUMENT for a CPU that does not exist or that this process may not use.
[[nodiscard]] Status PinThread(const CoreOptions& options);

// Lets the calling thread, which a core's may have started, run wherever the main one may.
void UnpinThread();

}  // namespace ringmaster
