#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {

std::vector<OpCase> ReluCases() {
  std::vector<OpCase> cases = {
      {"any shape", Relu{}, {{{3, 5, 2}}}},
      {"odd shape", Relu{}, {{{3, 5, 7}}}},
      {"odd shape", ReluGradient{}, {{{3, 5, 7}}, {{3, 5, 7}}}},
      {"whole vectors", ReluGradient{}, {{{1, 8192}}, {{1, 8192}}}},
  };
  for (int64_t count : kElementCounts) {
    const TensorType x = {{1, count}};
    const std::string what = std::to_string(count) + " elements";
    cases.push_back({.what = what, .kind = Relu{}, .inputs = {x}, .same_bits = true});
    cases.push_back({.what = what, .kind = ReluGradient{}, .inputs = {x, x}, .same_bits = true});
  }
  return cases;
}

}  // namespace ringmaster::graph
