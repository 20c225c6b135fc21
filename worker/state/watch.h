// What a job remembers of the metrics that it watches (checkpoint.best, stop): the best value so
// far, and how long it stood. Part of the state: every worker sees the same evaluations and keeps
// the same, a checkpoint has it, and the digest of the next state proves it. Free functions; step
// thread, under the job's state_mu.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ringmaster/v1/job.pb.h"
#include "worker/state/checkpoint_sink.h"
#include "worker/state/state.h"

namespace ringmaster::worker {

// Of a state whose job has not evaluated yet: one for each of spec.watches().
[[nodiscard]] std::vector<Watched> NothingWatched(const v1::ResultSpec& spec);

// S(state->step) was evaluated, or not: then nothing changes. States come in order; the newest one
// may come again, and stands as it stood. What checkpoint.best says of it.
[[nodiscard]] Standing LookAt(const v1::ResultSpec& spec,
                              const std::optional<Evaluation>& validation,
                              const std::optional<Evaluation>& test, State* state);

// The job takes no step from this state: it has them all, or `stop` ends it here.
[[nodiscard]] bool IsLast(const v1::ResultSpec& spec, const State& state);
// Because of `stop`.
[[nodiscard]] bool StopsEarly(const v1::ResultSpec& spec, const State& state);

}  // namespace ringmaster::worker
