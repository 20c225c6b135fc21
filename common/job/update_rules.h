// What the keys of `optimizer` say together: lengths of schedules, and what of decay and groups
// falls on each parameter. Pure; thread-safe (free functions).
#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::job {

// `spec` as it was written. What can be said before the data are known: INVALID_ARGUMENT names the
// key, what is expected and what there is. Lengths are compared where all of them and the job's are
// of one kind.
[[nodiscard]] Status CheckOptimizer(const v1::JobSpec& spec);

// `optimizer` in updates of the weights, of which the job has `total` at most; without groups.
[[nodiscard]] StatusOr<v1::Optimizer> ResolveOptimizer(const v1::Optimizer& optimizer,
                                                       uint64_t steps_per_epoch, uint64_t total);

// One for each trainable parameter of the graph. INVALID_ARGUMENT when a group matches none.
[[nodiscard]] StatusOr<google::protobuf::RepeatedPtrField<v1::TensorUpdate>> ResolveUpdates(
    const v1::Optimizer& optimizer, const v1::Graph& graph);

// By its role, the last part of its name: kernel, and what ends in _kernel; bias; gamma, beta;
// table, token. What is none of these is a kernel.
[[nodiscard]] v1::ParameterGroup GroupOf(const std::string& parameter);

}  // namespace ringmaster::job
