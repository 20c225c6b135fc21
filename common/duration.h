// Durations as people write and read them: the one form of every flag that is a time. Thread-safe
// (free functions).
#pragma once

#include <chrono>
#include <string>

#include "common/status.h"

namespace ringmaster {

// What a duration may be, ends included.
struct DurationRange {
  std::chrono::milliseconds least{1};
  std::chrono::milliseconds most = std::chrono::hours(365 * 24);
};

// `500ms`, `90s`, `10m`, `1.5h`, `1h30m`, and `0` where the range has it: numbers with units, as
// absl::ParseDuration reads them, whole milliseconds. INVALID_ARGUMENT names `what` and the range.
[[nodiscard]] StatusOr<std::chrono::milliseconds> ParseDuration(const std::string& text,
                                                                const std::string& what,
                                                                const DurationRange& range = {});

// What ParseDuration reads again: `500ms`, `3s`, `1h30m`, `0`.
[[nodiscard]] std::string ExactDuration(std::chrono::milliseconds duration);

// `8s`, `2m05s`, `3h07m`, `2d04h`: two units at most.
[[nodiscard]] std::string FormatDuration(std::chrono::seconds duration);

}  // namespace ringmaster
