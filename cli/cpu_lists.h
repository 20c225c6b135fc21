// Which CPUs each worker of a local cluster is pinned to. Thread-safe (free functions).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringmaster::cli {

// The CPUs that this process may run on, ascending; empty where the system does not say.
[[nodiscard]] std::vector<int> AvailableCpus();

// One list for --cpus a worker, disjoint, `per_worker` CPUs each, in order; none at all when there
// are not enough CPUs for every worker, because pinning some and not others helps nobody.
[[nodiscard]] std::vector<std::string> DisjointCpuLists(const std::vector<int>& available,
                                                        uint32_t workers, uint32_t per_worker);

}  // namespace ringmaster::cli
