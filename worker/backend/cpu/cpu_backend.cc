#include "worker/backend/cpu/cpu_backend.h"

#include <cpuid.h>
#include <gnu/libc-version.h>
#include <unistd.h>

#include <Eigen/Core>
#include <algorithm>
#include <dnnl.hpp>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "worker/backend/cpu/cpu_core.h"
#include "worker/backend/cpu/weights.h"

namespace ringmaster::cpu {
namespace {

// The value of the first `key : value` line, or "".
std::string CpuInfo(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t end = line.find_last_not_of(" \t", colon == 0 ? 0 : colon - 1);
    if (line.substr(0, end + 1) != key) continue;
    const size_t begin = line.find_first_not_of(' ', colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

// How many logical processors share each data cache, level after level: of two virtual machines on
// one kind of CPU this may differ, and kernels cut their loops by the share of one.
std::vector<unsigned> CacheSharing() {
  constexpr unsigned kIntelLeaf = 4;
  constexpr unsigned kAmdLeaf = 0x8000001d;  // of the same form
  constexpr unsigned kInstructions = 2;      // a type of cache; 0 ends the list
  std::vector<unsigned> sharing;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  for (const unsigned leaf : {kIntelLeaf, kAmdLeaf}) {
    for (unsigned i = 0; i < 16; ++i) {
      if (__get_cpuid_count(leaf, i, &eax, &ebx, &ecx, &edx) == 0) break;
      const unsigned type = eax & 31;
      if (type == 0) break;
      if (type != kInstructions) sharing.push_back((eax >> 14 & 0xfff) + 1);
    }
    if (!sharing.empty()) break;
  }
  return sharing;
}

// `model name` of /proc/cpuinfo with family, model and stepping, which alone tell virtual CPUs
// apart, and how many processors share the L1d, L2 and L3 caches.
std::string CpuModelName() {
  return fmt::format("{} family {} model {} stepping {}, caches shared by {}",
                     CpuInfo("model name"), CpuInfo("cpu family"), CpuInfo("model"),
                     CpuInfo("stepping"), fmt::join(CacheSharing(), "/"));
}

// L1d, L2 and L3 as the system reports them; 0 where it does not.
std::vector<uint64_t> CacheBytes() {
  std::vector<uint64_t> bytes;
  for (int name : {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE}) {
    bytes.push_back(static_cast<uint64_t>(std::max(sysconf(name), 0L)));
  }
  return bytes;
}

// Every library that computes, by name, with its version.
std::map<std::string, std::string> ComputeLibraries() {
  const dnnl_version_t* dnnl = dnnl_version();
  return {{"Eigen",
           fmt::format("{}.{}.{}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION)},
          {"glibc", gnu_get_libc_version()},
          {"oneDNN", fmt::format("{}.{}.{} {}", dnnl->major, dnnl->minor, dnnl->patch,
                                 std::string(dnnl->hash).substr(0, 12))}};
}

}  // namespace

StatusOr<std::unique_ptr<CpuBackend>> CpuBackend::Create(Bf16Arithmetic bf16) {
  RING_ASSIGN_OR_RETURN(Device device, Device::Create(bf16));
  return std::unique_ptr<CpuBackend>(new CpuBackend(std::move(device)));
}

v1::NumericsClass CpuBackend::numerics_class(uint32_t threads_per_core) const {
  v1::NumericsClass numerics;
  numerics.set_backend("cpu");
  numerics.set_device_model(CpuModelName());
  for (uint64_t bytes : CacheBytes()) numerics.add_cache_bytes(bytes);
  numerics.set_instruction_set(device_.instruction_set);
  numerics.set_threads_per_core(threads_per_core);
  for (const auto& [library, version] : ComputeLibraries()) {
    (*numerics.mutable_libraries())[library] = version;
  }
  return numerics;
}

v1::DeviceProfile CpuBackend::device_profile() const {
  v1::DeviceProfile profile;
  profile.set_kind("cpu");
  profile.set_alignment(kAlignment);
  return profile;
}

StatusOr<std::unique_ptr<Weights>> CpuBackend::MakeWeights(const graph::Program& training) {
  return std::make_unique<CpuWeights>(training, device_);
}

StatusOr<std::unique_ptr<Core>> CpuBackend::MakeCore(const CoreOptions& options) {
  return CpuCore::Create(options, device_);
}

}  // namespace ringmaster::cpu
