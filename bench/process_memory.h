// What this process holds of the host's memory, and a GPU of its own, as the system counts it.
// Thread-safe (free functions).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ringmaster::bench {

// A line of /proc/PID/status, `VmHWM:     1234 kB`, in bytes; nothing when it is not there.
[[nodiscard]] std::optional<uint64_t> StatusBytes(const std::string& status,
                                                  const std::string& key);
// The sum of lines of MiB, one a GPU: what nvidia-smi prints for memory.used.
[[nodiscard]] std::optional<uint64_t> SmiBytes(const std::string& lines);

struct HostMemory {
  uint64_t resident = 0;  // now
  uint64_t peak = 0;      // since the process began, or since ResetPeak
};
[[nodiscard]] HostMemory ReadHostMemory();
// The peak counts from here on; where the system refuses it goes on from the beginning.
void ResetPeak();

// Used on all GPUs that nvidia-smi shows, by whomever; nothing without nvidia-smi.
[[nodiscard]] std::optional<uint64_t> DeviceBytesUsed();

}  // namespace ringmaster::bench
