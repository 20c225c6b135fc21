// The models, by name, as layers that a graph is made of (common/model/build.h). Thread-safe (free
// functions).
#pragma once

#include "common/graph/builder.h"
#include "common/status.h"
#include "common/zoo/model_table.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::zoo {

// The model's layers behind `images`; `made` is then what they make. False: those are features, and
// there is no loss for them. INVALID_ARGUMENT names the model, the option and what is allowed.
[[nodiscard]] StatusOr<bool> AddModel(const v1::Model& model, const DataShape& data,
                                      graph::GraphBuilder& builder, graph::ValueId images,
                                      graph::ValueId* made);

// For a job: checks name and options (each option belongs to the model and is in range, and there
// is a loss) and fills defaults.
[[nodiscard]] StatusOr<v1::Model> ResolveModel(const v1::Model& model);

}  // namespace ringmaster::zoo
