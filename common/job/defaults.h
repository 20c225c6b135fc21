// What the parts of a JobSpec are when the user left them out: proto/ringmaster/v1/job.proto names
// every default. Pure; thread-safe (free functions). They check nothing.
#pragma once

#include <cstdint>

#include "ringmaster/v1/job.pb.h"

namespace ringmaster::job {

[[nodiscard]] v1::Optimizer WithDefaults(v1::Optimizer optimizer);
[[nodiscard]] v1::Augmentation WithDefaults(v1::Augmentation op);
[[nodiscard]] v1::CheckpointOptions WithDefaults(v1::CheckpointOptions options);
// The policy is never unspecified; loss scale and growth only with mixed_float16.
[[nodiscard]] v1::Precision WithDefaults(v1::Precision precision);
// All of the above, and the model's options, shards, seed, workers and reduction: a spec in which
// nothing is left to a default, and that resolves to the same job. What names no model of the zoo
// keeps its model as it is.
[[nodiscard]] v1::JobSpec WithDefaults(v1::JobSpec spec);
[[nodiscard]] uint32_t PrecisionBitsOf(const v1::JobSpec& spec);

}  // namespace ringmaster::job
