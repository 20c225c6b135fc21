// A job that goes on with the whole state of one that ended: what it may choose anew (how long it
// trains, and at which learning rates), and what it must have of that one. Pure; thread-safe (free
// functions).
#pragma once

#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::job {

// A job that ended, and one of its checkpoints.
struct Continued {
  const v1::JobSpec& spec;
  const v1::ResolvedJob& resolved;
  v1::CheckpointSource checkpoint;
};

// `spec` is valid, and has `continue`. Resolved with the dataset and the numerics class of the
// other job, which workers must find again. INVALID_ARGUMENT: a key that must be equal is not (the
// key, both values), or no step is left.
[[nodiscard]] StatusOr<v1::ResolvedJob> ResolveContinued(const v1::JobSpec& spec,
                                                         const Continued& source);

}  // namespace ringmaster::job
