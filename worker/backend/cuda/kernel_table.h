// Which function binds which op on a GPU: one row an op. Immutable, thread-safe.
#pragma once

#include "common/graph/ops/op_list.h"
#include "worker/backend/cuda/kernel.h"

namespace ringmaster::cuda {

// nullptr when the CUDA backend lacks the op.
[[nodiscard]] BindFunction FindKernel(const graph::Kind& kind);

}  // namespace ringmaster::cuda
