// Which function binds which op on the CPU: one row an op. Immutable, thread-safe.
#pragma once

#include "common/graph/ops/op_list.h"
#include "worker/backend/cpu/kernel.h"

namespace ringmaster::cpu {

// nullptr when the CPU backend lacks the op.
[[nodiscard]] BindFunction FindKernel(const graph::Kind& kind);

}  // namespace ringmaster::cpu
