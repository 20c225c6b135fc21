#include <cmath>

#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {
namespace {

// Logits of 120 .. 136, exact in 16 bits: exp alone would be infinite in float32.
void LargeLogits(const OpCase& /*self*/, OpCase::Operands* operands) {
  for (double& value : operands->front()) value = 128 + std::round(value * 8);
}

}  // namespace

std::vector<OpCase> SoftmaxCases() {
  return {
      {"three classes", Softmax{}, {{{5, 3}}}},
      {"a sequence", Softmax{}, {{{2, 3, 13}}}},
      {"one class", Softmax{}, {{{4, 1}}}},
      {.what = "large logits", .kind = Softmax{}, .inputs = {{{3, 10}}}, .prepare = LargeLogits},
      {"many classes", Softmax{}, {{{7, 1001}}}},
      {"a sequence", SoftmaxGradient{}, {{{2, 3, 13}}, {{2, 3, 13}}}},
      {"many classes", SoftmaxGradient{}, {{{7, 1001}}, {{7, 1001}}}},
  };
}

}  // namespace ringmaster::graph
