// NCCL on the late runtime, as late as its user guide allows: a call is under way until somebody
// has asked twice, only then is its work on the streams, and a GPU has its result only when it and
// those that it needs have come so far. What NCCL forbids, or would hang in, is an error. One
// thread.
#pragma once

#include <string>

#include "worker/backend/cuda/device/gpu_group.h"

namespace ringmaster::testing {

[[nodiscard]] cuda::Nccl LateNccl();

// What goes wrong from now on.
struct NcclFault {
  std::string call;       // a function's name: it fails
  bool later = false;     // it begins, and fails when asked for
  bool never = false;     // it begins, and never ends
  int wrong_device = -1;  // results on it are too large by one
  bool prompt = false;    // not at all: calls are done when they are asked for the first time
};
void SetNcclFault(const NcclFault& fault);

// Communicators so far.
struct NcclCounts {
  size_t made = 0;
  size_t destroyed = 0;
  size_t aborted = 0;
};
[[nodiscard]] NcclCounts CountCommunicators();

}  // namespace ringmaster::testing
