#include "worker/backend/cpu/numerics.h"

#include <gnu/libc-version.h>
#include <unistd.h>
#include <dnnl.hpp>

#include <algorithm>
#include <fstream>

#include "common/status.h"

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

}  // namespace

std::string CpuModelName() {
  return fmt::format("{} family {} model {} stepping {}", CpuInfo("model name"),
                     CpuInfo("cpu family"), CpuInfo("model"), CpuInfo("stepping"));
}

std::vector<uint64_t> CacheBytes() {
  std::vector<uint64_t> bytes;
  for (int name : {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE}) {
    bytes.push_back(static_cast<uint64_t>(std::max(sysconf(name), 0L)));
  }
  return bytes;
}

std::map<std::string, std::string> ComputeLibraries() {
  const dnnl_version_t* dnnl = dnnl_version();
  return {{"glibc", gnu_get_libc_version()},
          {"oneDNN", fmt::format("{}.{}.{} {}", dnnl->major, dnnl->minor, dnnl->patch,
                                 std::string(dnnl->hash).substr(0, 12))}};
}

}  // namespace ringmaster::cpu
