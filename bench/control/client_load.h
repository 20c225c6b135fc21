// Calls of clients, so many under way at a time, for a while. Thread-compatible: one load at a
// time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "bench/control/coordinator_process.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::bench {

struct LoadResult {
  uint64_t done = 0, failed = 0;
  double seconds = 0;
  double call_p50_ms = 0, call_p99_ms = 0;
  std::string error;  // the first one
};

struct LoadOptions {
  int connections = 4;
  int under_way = 64;
  uint64_t most = 0;  // calls; 0: until the time is over
  std::chrono::milliseconds lasts{5'000};
  const std::atomic<bool>* over = nullptr;  // ends it before
  std::chrono::milliseconds pause{0};       // of each line of calls, between two
};

// Durable submissions of `spec`, each a job of its own.
[[nodiscard]] LoadResult Submit(const CoordinatorProcess& coordinator, const v1::JobSpec& spec,
                                const LoadOptions& options);
// Questions that the thread which decides answers without looking at anything (GetGraph of no job),
// one after the other: how long an event waits, and what a call costs beside that.
[[nodiscard]] LoadResult AskLoop(const CoordinatorProcess& coordinator, const LoadOptions& options);
// Get of one job.
[[nodiscard]] LoadResult ReadStatus(const CoordinatorProcess& coordinator,
                                    const std::string& job_id, const LoadOptions& options);

}  // namespace ringmaster::bench
