#include "tests/support/stablehlo/ops/op_table.h"

#include <map>

namespace ringmaster::testing::stablehlo {

Rule FindRule(const std::string& op) {
  static const std::map<std::string, Rule> kRules = [] {
    std::map<std::string, Rule> rules = {
        {"compare", Compare},
        {"select", Select},
        {"clamp", Clamp},
        {"convert", Convert},
        {"bitcast_convert", BitcastConvert},
        {"reduce_precision", ReducePrecision},
        {"optimization_barrier", OptimizationBarrier},
        {"iota", Iota},
        {"broadcast_in_dim", BroadcastInDim},
        {"reshape", Reshape},
        {"transpose", Transpose},
        {"reverse", Reverse},
        {"slice", Slice},
        {"dynamic_slice", DynamicSlice},
        {"dynamic_update_slice", DynamicUpdateSlice},
        {"concatenate", Concatenate},
        {"pad", Pad},
        {"dot_general", DotGeneral},
        {"convolution", Convolution},
        {"reduce", Reduce},
        {"reduce_window", ReduceWindow},
        {"select_and_scatter", SelectAndScatter},
        {"gather", Gather},
        {"scatter", Scatter},
    };
    for (const char* name : {"negate", "abs", "sign", "exponential", "exponential_minus_one", "log",
                             "log_plus_one", "tanh", "logistic", "rsqrt", "sqrt", "cbrt", "floor",
                             "ceil", "round_nearest_even", "cosine", "sine", "not", "is_finite"}) {
      rules[name] = Unary;
    }
    for (const char* name :
         {"add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "remainder",
          "and", "or", "xor", "shift_left", "shift_right_logical", "shift_right_arithmetic"}) {
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
