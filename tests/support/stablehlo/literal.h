// Literals of tensors as MLIR writes them: dense<0.5>, dense<[[0, 1]]>, dense<0xFF800000>,
// dense<"0x0000803F">. Free function, thread-safe.
#pragma once

#include "tests/support/stablehlo/cursor.h"

namespace ringmaster::testing::stablehlo {

// From behind `dense` up to and with the type.
[[nodiscard]] StatusOr<Tensor> ParseDense(Cursor& cursor);

}  // namespace ringmaster::testing::stablehlo
