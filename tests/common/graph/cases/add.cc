#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {

std::vector<OpCase> AddCases() {
  std::vector<OpCase> cases = {
      {"matrices", Add{}, {{{3, 4}}, {{3, 4}}}},
      {"odd shape", Add{}, {{{3, 5, 7}}, {{3, 5, 7}}}},
      {"a tail after many vectors", Add{}, {{{2, 4099}}, {{2, 4099}}}},
  };
  for (int64_t count : kElementCounts) {
    const TensorType x = {{1, count}};
    cases.push_back({.what = std::to_string(count) + " elements",
                     .kind = Add{},
                     .inputs = {x, x},
                     .same_bits = true});
  }
  return cases;
}

}  // namespace ringmaster::graph
