#include "tests/support/stablehlo/ops/op_table.h"

#include <map>

namespace ringmaster::testing::stablehlo {

Rule FindRule(const std::string& op) {
  static const std::map<std::string, Rule> kRules = [] {
    std::map<std::string, Rule> rules = {
        {"compare", Compare},
        {"select", Select},
        {"convert", Convert},
        {"optimization_barrier", OptimizationBarrier},
        {"iota", Iota},
        {"broadcast_in_dim", BroadcastInDim},
        {"reshape", Reshape},
        {"transpose", Transpose},
        {"reverse", Reverse},
        {"slice", Slice},
        {"concatenate", Concatenate},
        {"pad", Pad},
        {"dot_general", DotGeneral},
        {"convolution", Convolution},
        {"reduce", Reduce},
        {"reduce_window", ReduceWindow},
        {"select_and_scatter", SelectAndScatter},
    };
    for (const char* name : {"negate", "abs", "exponential", "exponential_minus_one", "log",
                             "log_plus_one", "tanh", "sqrt"}) {
      rules[name] = Unary;
    }
    for (const char* name : {"add", "subtract", "multiply", "divide", "maximum", "minimum", "and",
                             "or", "xor", "shift_right_logical"}) {
      rules[name] = Binary;
    }
    return rules;
  }();
  constexpr std::string_view kDialect = "stablehlo.";
  if (!op.starts_with(kDialect)) return nullptr;
  const auto found = kRules.find(op.substr(kDialect.size()));
  return found == kRules.end() ? nullptr : found->second;
}

}  // namespace ringmaster::testing::stablehlo
