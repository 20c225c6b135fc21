// What a ring came to, compared with what Python's integers come to: each step's shard gradients
// are dumped, and tests/common/exact/reference_sums.py sums them on its own.
#pragma once

#include <vector>

#include "tests/worker/ring/reduction_case.h"

namespace ringmaster::ring {

// `results`: one member's, of every step. An error names the first step at which totals, flags of
// gradients, reduced values or the units after it are not the script's. Beside a flag a ring gives
// no reduced values and resets the units; both are then made from the totals, as the script does.
[[nodiscard]] Status CompareWithScript(const ReductionCase& job,
                                       const std::vector<StepResult>& results);

}  // namespace ringmaster::ring
