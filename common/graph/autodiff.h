// Reverse-mode differentiation of a program: appends the backward nodes by the gradient rules of
// the op table. Thread-safe (free function). It runs before any other pass, all in float32.
#pragma once

#include "common/graph/program.h"

namespace ringmaster::graph {

// Adds a fed scalar for each loss, its seed; the gradient of the sum over losses of seed * sum with
// respect to every parameter; and gradient_order. Gradients that meet are summed by `add` nodes;
// nothing is computed for columns. INVALID_ARGUMENT names a parameter that the loss does not depend
// on.
[[nodiscard]] Status Differentiate(Program* program);

}  // namespace ringmaster::graph
