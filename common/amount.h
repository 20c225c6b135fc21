// Amounts of memory and of time, as people write and read them, and how much memory there is.
// Thread-safe (free functions).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "common/status.h"

namespace ringmaster {

// `8GiB`, `512MiB`, `64KiB`, `1TiB` or plain bytes: a whole number above 0. INVALID_ARGUMENT names
// `what`.
[[nodiscard]] StatusOr<uint64_t> ParseBytes(const std::string& text, const std::string& what);

// `12.0 GiB`, `512 B`: the largest unit that leaves at least 1.
[[nodiscard]] std::string FormatBytes(uint64_t bytes);
// `9.31G`, `530.00M`: the memory of an accelerator, as XLA says it, in powers of 1024.
[[nodiscard]] std::string FormatHbm(uint64_t bytes);

// What this process may use of the host's memory: all of it, or less where a cgroup (a container, a
// unit of systemd, a batch system's job) limits it. Asks the system each time.
[[nodiscard]] uint64_t HostMemory();

// The smallest memory limit of the cgroups that `membership` (/proc/self/cgroup) names and of those
// above them, version 1 or 2, below `mount` (/sys/fs/cgroup). Empty: none of them has a limit.
[[nodiscard]] std::optional<uint64_t> CgroupMemoryLimit(const std::string& mount,
                                                        const std::string& membership);

// What a duration may be, ends included.
struct DurationRange {
  std::chrono::milliseconds least{1};
  std::chrono::milliseconds most = std::chrono::hours(365 * 24);
};

// `500ms`, `90s`, `10m`, `1.5h`, `1h30m`, and `0` where the range has it: numbers with units, as
// absl::ParseDuration reads them, whole milliseconds: the one form of every flag that is a time.
// INVALID_ARGUMENT names `what` and the range.
[[nodiscard]] StatusOr<std::chrono::milliseconds> ParseDuration(const std::string& text,
                                                                const std::string& what,
                                                                const DurationRange& range = {});

// What ParseDuration reads again: `500ms`, `3s`, `1h30m`, `0`.
[[nodiscard]] std::string ExactDuration(std::chrono::milliseconds duration);

// `8s`, `2m05s`, `3h07m`, `2d04h`: two units at most.
[[nodiscard]] std::string FormatDuration(std::chrono::seconds duration);

}  // namespace ringmaster
