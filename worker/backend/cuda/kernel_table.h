// Which function binds which op on a GPU: one row an op. Immutable, thread-safe.
#pragma once

#include "common/graph/graph.h"
#include "common/status.h"
#include "worker/backend/cuda/kernel.h"

namespace ringmaster::cuda {

// nullptr when the CUDA backend lacks the op.
[[nodiscard]] BindFunction FindKernel(const graph::Kind& kind);

// The same for a node. UNIMPLEMENTED names the node and its op where there is no kernel, or none
// for what the node asks of the op.
[[nodiscard]] StatusOr<BindFunction> FindKernel(const graph::Node& node);

}  // namespace ringmaster::cuda
