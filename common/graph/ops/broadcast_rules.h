// What the rules of broadcasting ops share. Thread-safe (free functions).
#pragma once

#include "common/graph/ops/broadcast.h"
#include "common/graph/ops/operands.h"

namespace ringmaster::graph {

// The type of the only output of an op on two operands of one floating type.
[[nodiscard]] StatusOr<OpOutputs> BroadcastTypes(OpInputs inputs);

// What `gradient`, of the type of the node's output, is to its input i: a reduce_to where that was
// broadcast, itself where it was not.
[[nodiscard]] StatusOr<ValueId> ReducedTo(const GradientRequest& request, size_t i,
                                          ValueId gradient);

}  // namespace ringmaster::graph
