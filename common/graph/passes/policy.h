// The precision policy: which values are kept in a 16-bit compute type. Thread-safe (free
// function). It runs after autodiff and before fusion.
#pragma once

#include "common/graph/program.h"

namespace ringmaster::graph {

// Every node reads and makes `compute`, but for the operands that its row of the op table keeps in
// float32 (biases, scales, statistics, the loss), with `cast` nodes where the two meet. A parameter
// that is read in `compute` alone is fed in it; gradients of parameters stay float32. kFloat32
// changes nothing.
[[nodiscard]] Status ApplyPolicy(Program* program, DType compute);

}  // namespace ringmaster::graph
