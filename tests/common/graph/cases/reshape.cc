#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {

std::vector<OpCase> ReshapeCases() {
  return {
      {"to a matrix", Reshape{}, {{{2, 3, 4, 2}}}, {{{2, 24}}}},
      {"odd extents", Reshape{}, {{{3, 5, 2, 7}}}, {{{3, 70}}}},
  };
}

}  // namespace ringmaster::graph
