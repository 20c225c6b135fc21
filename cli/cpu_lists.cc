#include "cli/cpu_lists.h"

#include <sched.h>

namespace ringmaster::cli {

std::vector<int> AvailableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<std::string> DisjointCpuLists(const std::vector<int>& available, uint32_t workers,
                                          uint32_t per_worker) {
  std::vector<std::string> lists;
  if (uint64_t{workers} * per_worker > available.size()) return lists;
  auto next = available.begin();
  for (uint32_t worker = 0; worker < workers; ++worker) {
    std::string list;
    for (uint32_t i = 0; i < per_worker; ++i) {
      list += (i == 0 ? "" : ",") + std::to_string(*next++);
    }
    lists.push_back(list);
  }
  return lists;
}

}  // namespace ringmaster::cli
