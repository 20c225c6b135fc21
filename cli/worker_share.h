// What each worker of `ringctl up` gets of its host: devices, cores, memory, CPUs. Values in,
// values out; thread-safe (free functions).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"

namespace ringmaster::cli {

// Which CPUs each worker of a local cluster is pinned to. Thread-safe (free functions).

// The CPUs that this process may run on, ascending; empty where the system does not say.
[[nodiscard]] std::vector<int> AvailableCpus();

// One list for --cpus a worker, disjoint, `per_worker` CPUs each, in order; none at all when there
// are not enough CPUs for every worker, because pinning some and not others helps nobody.
[[nodiscard]] std::vector<std::string> DisjointCpuLists(const std::vector<int>& available,
                                                        uint32_t workers, uint32_t per_worker);

// What each worker of `ringctl up` gets of its host: devices, cores, memory, CPUs. Values in,
// values out; thread-safe (free functions).

// What `ringworker devices` says of this host, and the CPUs that this process may run on.
struct HostDevices {
  std::string device;  // cpu, cuda or pjrt
  std::string model;
  uint32_t devices = 1;
  uint64_t memory = 0;  // bytes for the cores of one device
  std::vector<int> cpus;
  bool exclusive = false;  // to one process at a time
};
[[nodiscard]] StatusOr<HostDevices> ParseHostDevices(const std::string& line);

struct ShareOptions {
  std::string device;  // of --device: auto, cpu, cuda, cuda:INDEX, pjrt or pjrt:FILE
  uint32_t workers = 1;
  uint32_t cores = 0;  // 0: all CPUs, shared evenly; one for each GPU of a worker
  uint32_t threads_per_core = 1;
  uint64_t memory_per_core = 0;  // bytes; 0: an equal part of what there is
};

struct WorkerShare {
  std::string device;  // --device of this worker
  uint32_t cores = 1;
  uint64_t memory_per_core = 0;  // bytes
  std::string cpus;              // --cpus; empty: not pinned
};

// One a worker. A GPU's memory is shared by the cores on it, all workers together; four fifths of
// the host's by all cores. One worker has all GPUs; several have one each, dealt in turn. Of a
// plugin's devices each worker has an equal part. INVALID_ARGUMENT: several workers, and devices
// that one process alone may have.
[[nodiscard]] StatusOr<std::vector<WorkerShare>> ShareHost(const HostDevices& host,
                                                           const ShareOptions& options);

// `2 workers, each 1 core with 38.0 GiB on NVIDIA H100 80GB HBM3`; of a CPU without its caches.
[[nodiscard]] std::string DescribeShares(const HostDevices& host,
                                         const std::vector<WorkerShare>& shares);

}  // namespace ringmaster::cli
