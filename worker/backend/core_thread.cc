#include "worker/backend/core_thread.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <cstring>

namespace ringmaster {

Status PinThread(const CoreOptions& options) {
  if (options.cpus.empty()) return absl::OkStatus();
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : options.cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE) {
      return InvalidArgument("{}: there is no CPU {}", options.name, cpu);
    }
    CPU_SET(static_cast<size_t>(cpu), &set);
  }
  const int error = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
  if (error == 0) return absl::OkStatus();
  return InvalidArgument(
      "{}: cannot run on CPUs {}: {}; `nproc --all` and `taskset -p` tell what "
      "this process may use",
      options.name, fmt::join(options.cpus, ","), std::strerror(error));
}

void UnpinThread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(getpid(), sizeof(set), &set) != 0) return;
  (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

}  // namespace ringmaster
