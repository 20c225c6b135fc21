// The grammar of MLIR's generic form, as far as modules of StableHLO need it: one rule for every
// op. Knows no op. Free function, thread-safe.
#pragma once

#include <string_view>

#include "tests/support/stablehlo/syntax.h"

namespace ringmaster::testing::stablehlo {

// INVALID_ARGUMENT with line and column.
[[nodiscard]] StatusOr<ModuleText> ParseText(std::string_view text);

}  // namespace ringmaster::testing::stablehlo
