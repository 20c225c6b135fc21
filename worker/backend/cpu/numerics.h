// What this host computes with: the CPU part of a numerics class. Thread-safe (free functions).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ringmaster::cpu {

// `model name` of /proc/cpuinfo with family, model and stepping, which alone tell virtual CPUs
// apart, and how many processors share the L1d, L2 and L3 caches.
[[nodiscard]] std::string CpuModelName();

// L1d, L2 and L3 as the system reports them; 0 where it does not.
[[nodiscard]] std::vector<uint64_t> CacheBytes();

// Every library that computes, by name, with its version.
[[nodiscard]] std::map<std::string, std::string> ComputeLibraries();

}  // namespace ringmaster::cpu
