// The optimizer rules: the only list. The CPU's loop, the CUDA kernels, slot counts and tests run
// over it. For host code and GPU kernels.
#pragma once

#include <algorithm>
#include <type_traits>
#include <variant>

#include "common/graph/update/around.h"
#include "common/graph/update/norms.h"
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
  double rate = 0;  // the formula's, before norms scale it
};

// What norms change in a step: that of a rule which has no norms of its own only by clipping.
template <typename Rule>
RING_HOST_DEVICE void ScaleByNorms(const NormFactors& factors, double rate, Rule& rule,
                                   Around& around) {
  if constexpr (!std::is_same_v<Rule, AddSum>) around.scale = static_cast<float>(factors.gradient);
  if constexpr (Rule::kAdapts != Adapts::kNot) rule.rate = static_cast<float>(rate * factors.rate);
}

}  // namespace ringmaster::graph
