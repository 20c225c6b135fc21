// Why a job cannot go on: a stable word, who is to blame, and what its user can do about it. One
// table, word -> advice (docs/errors.md lists the words). Pure; thread-safe (free functions).
#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"
#include "ringmaster/v1/fleet.pb.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::coordinator {

enum class Cause {
  kNone,
  kWorkerFailed,
  kNotFinite,
  kDataset,
  kDatasetDiffers,
  kInit,
  kInvalidJob,
  kMemory,
  kKnownShardDiffers,
  kStateDiffers,
  kScript,
  kProtocolViolation,
  kCheckpointDiffers,
  kNoCheckpoint,
};

// Nothing, or the reason why a job cannot go on, as one sentence.
struct Fault {
  Cause cause = Cause::kNone;
  std::string reason;
  std::string worker;  // empty when no single worker is the cause
  uint64_t step = 0;   // as far as it is known; else the applied ones count
  bool ok() const { return cause == Cause::kNone; }
};

// `status` is the reason; OK is no fault.
[[nodiscard]] Fault FaultOf(Cause cause, const Status& status, const std::string& worker = "");

// WORKER_FAILED of kWorkerFailed.
[[nodiscard]] std::string WordOf(Cause cause);

// What a worker says of why it cannot go on. kWorkerFailed where it does not know, and of a code
// that this coordinator does not.
[[nodiscard]] Cause CauseOfCode(v1::FailureCode code);

// Where a fault happened.
struct Scene {
  std::string job_id;
  std::string host;   // of Fault.worker; empty when it is unknown
  std::string phase;  // what that worker did; empty when it is unknown
  uint64_t step = 0;
  uint64_t kept_step = 0;  // of the newest checkpoint; 0 = there is none
  bool of_script = false;  // no other job can continue it
};
[[nodiscard]] v1::Failure MakeFailure(const Fault& fault, const Scene& scene);

// `worker w2 on host node-b`; without the host when it is unknown.
[[nodiscard]] std::string Called(const std::string& worker, const std::string& host);
// `at step 812 in compute`; without the phase when it is unknown.
[[nodiscard]] std::string At(uint64_t step, const std::string& phase);

}  // namespace ringmaster::coordinator
