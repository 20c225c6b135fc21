#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {

std::vector<OpCase> ReluCases() {
  std::vector<OpCase> cases = {
      {"any shape", Relu{}, {{{3, 5, 2}}}},
      {"odd shape", Relu{}, {{{3, 5, 7}}}},
      {"odd shape", ReluGradient{}, {{{3, 5, 7}}, {{3, 5, 7}}}},
      {"whole vectors", ReluGradient{}, {{{1, 8192}}, {{1, 8192}}}},
  };
  return cases;
}

}  // namespace ringmaster::graph
