#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {
namespace {

PoolAttributes MeanOf(int64_t window, int64_t stride, int64_t low, int64_t high) {
  return {{window, window}, {stride, stride}, {low, low, high, high}};
}

}  // namespace

std::vector<OpCase> AveragePoolCases() {
  const PoolAttributes overlapping = {{3, 3}, {2, 2}, {1, 1, 1, 0}};
  return {
      {"2x2", AveragePool{}, {{{2, 4, 6, 3}}}},
      {"overlapping, padded", AveragePool{overlapping}, {{{2, 7, 5, 2}}}},
      {"odd window, rest left over", AveragePool{{{3, 2}, {3, 2}}}, {{{1, 8, 7, 1}}}},
      {"3x3 same", AveragePool{MeanOf(3, 1, 1, 1)}, {{{1, 5, 6, 7}}}},
      {"gaps between windows", AveragePool{{{2, 1}, {3, 2}}}, {{{2, 7, 6, 2}}}},
      {"many channels", AveragePool{MeanOf(2, 2, 0, 1)}, {{{1, 7, 5, 600}}}},
      {"overlapping, padded", AveragePoolGradient{overlapping}, {{{2, 4, 2, 2}}}, {{{2, 7, 5, 2}}}},
      {"3x3 same", AveragePoolGradient{MeanOf(3, 1, 1, 1)}, {{{2, 5, 6, 19}}}, {{{2, 5, 6, 19}}}},
      {"gaps between windows",
       AveragePoolGradient{{{2, 1}, {3, 2}}},
       {{{2, 2, 3, 5}}},
       {{{2, 7, 6, 5}}}},
      {"many channels",
       AveragePoolGradient{MeanOf(2, 2, 0, 1)},
       {{{1, 4, 3, 600}}},
       {{{1, 7, 5, 600}}}},
  };
}

}  // namespace ringmaster::graph
