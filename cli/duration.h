// Durations as people write and read them: 90s, 10m, 1h. Thread-safe (free functions).
#pragma once

#include <chrono>
#include <string>

#include "common/status.h"

namespace ringmaster::cli {

// `500ms`, `90s`, `10m`, `1h`, `1.5h`: a positive number and a unit, at most a year.
// INVALID_ARGUMENT names `what`.
[[nodiscard]] StatusOr<std::chrono::milliseconds> ParseDuration(const std::string& text,
                                                                const std::string& what);

// `8s`, `2m05s`, `3h07m`, `2d04h`: two units at most.
[[nodiscard]] std::string FormatDuration(std::chrono::seconds duration);

}  // namespace ringmaster::cli
