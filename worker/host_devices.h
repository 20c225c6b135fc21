// What this host computes on: the backend that --device names, and `ringworker devices`, which says
// what it has before any worker starts. Thread-safe (free functions).
#pragma once

#include <memory>
#include <string>

#include "common/status.h"
#include "worker/backend/backend.h"
#include "worker/flags.h"

namespace ringmaster::worker {

// FAILED_PRECONDITION: there is no device of this index. Logs what it is unless it is a CPU.
[[nodiscard]] StatusOr<std::unique_ptr<Backend>> OpenBackend(const DeviceChoice& device);

// One line of JSON: `device` (cpu or cuda), `backend`, `device_model`, `devices` and
// `memory_bytes`, which is what one of them has for its cores: a GPU's memory, or the host's
// (common/memory.h).
[[nodiscard]] std::string DescribeDevices(const Backend& backend);

// `ringworker devices [--device D]`: prints that line; the exit code.
[[nodiscard]] int DevicesMain(int argc, const char* const* argv);

}  // namespace ringmaster::worker
