// The models, by name. Thread-safe (free functions). A model becomes a graph, which jobs carry and
// programs are built from (common/graph/message); workers know no models.
#pragma once

#include "common/graph/builder.h"
#include "common/graph/program.h"
#include "common/status.h"
#include "common/zoo/model_table.h"
#include "ringmaster/v1/graph.pb.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::zoo {

struct ProgramOptions {
  graph::Mode mode = graph::Mode::kTraining;
  int64_t samples = 0;  // of the shard, >= 1
  int64_t height = 0, width = 0, channels = 0, classes = 0;
  v1::Policy policy = v1::POLICY_FLOAT32;
  v1::MemoryOptions memory = {};
};

// The model's layers behind `images`; `made` is then what they make. False: those are features, and
// there is no loss for them. INVALID_ARGUMENT names the model, the option and what is allowed.
[[nodiscard]] StatusOr<bool> AddModel(const v1::Model& model, const DataShape& data,
                                      graph::GraphBuilder& builder, graph::ValueId images,
                                      graph::ValueId* made);

// The layers of one sample as they train, without gradients, and without a loss where the model
// ends in features. Errors as above.
[[nodiscard]] StatusOr<graph::Program> BuildLayers(const v1::Model& model,
                                                   const ProgramOptions& options);

// The canonical forward graph; mode, samples and policy have no part in it. Errors as above, also
// where there is no loss.
[[nodiscard]] StatusOr<v1::Graph> BuildGraph(const v1::Model& model, const ProgramOptions& options);

// A program of it: the forward one alone, and one that is ready to plan and bind.
[[nodiscard]] StatusOr<graph::Program> BuildForward(const v1::Model& model,
                                                    const ProgramOptions& options);
[[nodiscard]] StatusOr<graph::Program> BuildProgram(const v1::Model& model,
                                                    const ProgramOptions& options);

// For a job: checks name and options (each option belongs to the model and is in range, and there
// is a loss) and fills defaults.
[[nodiscard]] StatusOr<v1::Model> ResolveModel(const v1::Model& model);

}  // namespace ringmaster::zoo
