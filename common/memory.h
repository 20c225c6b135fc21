// Amounts of memory: how they are written and read everywhere, and how much of it there is. Thread-
// safe (free functions).
#pragma once

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

// What this process may use of the host's memory: all of it, or less where a cgroup (a container, a
// unit of systemd, a batch system's job) limits it. Asks the system each time.
[[nodiscard]] uint64_t HostMemory();

// The smallest memory limit of the cgroups that `membership` (/proc/self/cgroup) names and of those
// above them, version 1 or 2, below `mount` (/sys/fs/cgroup). Empty: none of them has a limit.
[[nodiscard]] std::optional<uint64_t> CgroupMemoryLimit(const std::string& mount,
                                                        const std::string& membership);

}  // namespace ringmaster
