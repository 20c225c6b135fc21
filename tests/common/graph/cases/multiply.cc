#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {

std::vector<OpCase> MultiplyCases() {
  std::vector<OpCase> cases = {
      {"matrices", Multiply{}, {{{3, 4}}, {{3, 4}}}},
      {"a tail after many vectors", Multiply{}, {{{2, 4099}}, {{2, 4099}}}},
  };
  for (OpCase& test : BroadcastCases(Multiply{})) cases.push_back(std::move(test));
  return cases;
}

}  // namespace ringmaster::graph
