// What tests of the logic begin with: moments of a simulated clock, and jobs as a store has them.
// Thread-safe (free functions).
#pragma once

#include <chrono>
#include <cstdint>

#include "coordinator/logic/event.h"
#include "coordinator/logic/job.h"
#include "tests/support/cluster_messages.h"

namespace ringmaster::coordinator {

[[nodiscard]] inline Now AtMs(int64_t ms) { return {std::chrono::milliseconds(ms), 0}; }

// Not resolved.
[[nodiscard]] inline JobRecord StoredJob(uint64_t number, v1::JobState state) {
  JobRecord record;
  record.number = number;
  record.idempotency_key = "first";
  record.status.set_job_id(MakeJobId(number));
  record.status.set_name("test");
  record.status.set_state(state);
  *record.status.mutable_spec() = testing::MakeSpec();
  return record;
}

}  // namespace ringmaster::coordinator
