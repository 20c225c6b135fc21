// What is durable about a job, a checkpoint and a drain, as plain values: made by the logic, kept
// by the store. Thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/logic/job_events.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::coordinator {

struct JobRecord {
  uint64_t number = 0;  // 1, 2, ...: the order of submission; the job id is made of it
  std::string idempotency_key;
  std::string spec_sha256;  // hex, of the spec as submitted: tells a retry from another job
  bool cancel_requested = false;
  v1::JobStatus status;  // with the spec; progress only as it was at the last change of state
  std::optional<v1::ResolvedJob> resolved;
  JobEvents events;

  const std::string& id() const { return status.job_id(); }
};

// A worker that takes no job: this process of it, or, without an incarnation, none any more.
struct DrainRecord {
  std::string worker, incarnation;
};

struct CheckpointRecord {
  std::string job_id;
  v1::CheckpointRef ref;
  bool best = false;  // by checkpoint.best, of all states before it
};

}  // namespace ringmaster::coordinator
