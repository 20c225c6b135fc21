// The models, by name. Thread-safe (free functions). A model becomes a Program for one shard shape:
// the same parameters in the same canonical order whatever the number of samples, mode or policy.
#pragma once

#include "common/graph/program.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::zoo {

struct ProgramOptions {
  graph::Mode mode = graph::Mode::kTraining;
  int64_t samples = 0;  // of the shard, >= 1
  int64_t height = 0, width = 0, channels = 0, classes = 0;
  v1::Policy policy = v1::POLICY_FLOAT32;
};

// Model -> graph alone, each layer as it was written; `policy` has no part in it. Errors: see
// BuildProgram.
[[nodiscard]] StatusOr<graph::Program> BuildForward(const v1::Model& model,
                                                    const ProgramOptions& options);

// Model -> graph -> autodiff -> policy -> fusion: ready to plan and bind. INVALID_ARGUMENT names
// the model, the option and what is allowed.
[[nodiscard]] StatusOr<graph::Program> BuildProgram(const v1::Model& model,
                                                    const ProgramOptions& options);

// Checks name and options (each option belongs to the model and is in range) and fills defaults.
[[nodiscard]] StatusOr<v1::Model> ResolveModel(const v1::Model& model);

}  // namespace ringmaster::zoo
