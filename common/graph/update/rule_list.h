// The optimizer rules: the only list. The CPU's loop, the CUDA kernels, slot counts and tests run
// over it. For host code and GPU kernels.
#pragma once

#include <algorithm>
#include <variant>

#include "common/graph/update/around.h"
#include "common/graph/update/rules/adam.h"
#include "common/graph/update/rules/lamb.h"
#include "common/graph/update/rules/lars.h"
#include "common/graph/update/rules/rmsprop.h"
#include "common/graph/update/rules/sgd.h"
#include "common/graph/update/rules/torch_rules.h"

namespace ringmaster::graph {

template <typename... Rule>
struct RuleList {
  using Variant = std::variant<Rule...>;
  static constexpr int kMaxSlots = std::max({Rule::kSlots...});
};

using Rules = RuleList<PlainSgd, MomentumSgd, Adam, RmsProp<false, false>, RmsProp<true, false>,
                       RmsProp<false, true>, RmsProp<true, true>, Lars, Lamb, TorchSgd, TorchAdam,
                       TorchRmsProp<false, false>, TorchRmsProp<true, false>,
                       TorchRmsProp<false, true>, TorchRmsProp<true, true>, AddSum>;

// A rule with the scalars of one update.
using Formula = Rules::Variant;

// One update of one tensor.
struct TensorStep {
  Formula formula;
  Around around;
};

}  // namespace ringmaster::graph
