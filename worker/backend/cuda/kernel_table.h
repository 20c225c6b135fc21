// Which function binds which op on a GPU: one row an op. Immutable, thread-safe.
#pragma once

#include "common/graph/graph.h"
#include "common/status.h"
#include "worker/backend/cuda/kernel.h"

namespace ringmaster::cuda {

// nullptr when the CUDA backend lacks the op.
[[nodiscard]] BindFunction FindKernel(const graph::Kind& kind);

// The same for a node: UNIMPLEMENTED names it and its op where there is none.
[[nodiscard]] StatusOr<BindFunction> FindKernel(const graph::Node& node);

}  // namespace ringmaster::cuda
