// Every op that the interpreter has, which are those that the emitter writes: its rule, which
// checks the op against its types and makes the kernel. One file a family. Immutable; thread-safe.
#pragma once

#include <string>

#include "tests/support/stablehlo/operation.h"

namespace ringmaster::testing::stablehlo {

using Rule = StatusOr<Kernel> (*)(const Operation&);

// nullptr: no such op here.
[[nodiscard]] Rule FindRule(const std::string& op);

// Rules; each says in its file what it checks.
StatusOr<Kernel> Unary(const Operation& op);
StatusOr<Kernel> Binary(const Operation& op);
StatusOr<Kernel> Compare(const Operation& op);
StatusOr<Kernel> Select(const Operation& op);
StatusOr<Kernel> Convert(const Operation& op);
StatusOr<Kernel> OptimizationBarrier(const Operation& op);

StatusOr<Kernel> Iota(const Operation& op);
StatusOr<Kernel> BroadcastInDim(const Operation& op);
StatusOr<Kernel> Reshape(const Operation& op);
StatusOr<Kernel> Transpose(const Operation& op);
StatusOr<Kernel> Reverse(const Operation& op);
StatusOr<Kernel> Slice(const Operation& op);
StatusOr<Kernel> Concatenate(const Operation& op);
StatusOr<Kernel> Pad(const Operation& op);

StatusOr<Kernel> DotGeneral(const Operation& op);
StatusOr<Kernel> Convolution(const Operation& op);

StatusOr<Kernel> Reduce(const Operation& op);
StatusOr<Kernel> ReduceWindow(const Operation& op);
StatusOr<Kernel> SelectAndScatter(const Operation& op);

}  // namespace ringmaster::testing::stablehlo
