#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {

std::vector<OpCase> DenseCases() {
  const auto relu = Activation::kRelu;
  return {
      {"plain", Dense{}, {{{3, 5}}, {{5, 4}}, {{4}}}},
      {"no bias, one row and column", Dense{}, {{{1, 7}}, {{7, 1}}}},
      {"no bias", Dense{}, {{{3, 13}}, {{13, 10}}}},
      {"relu", Dense{{relu}}, {{{4, 3}}, {{3, 6}}, {{6}}}},
      {"relu, odd extents", Dense{{relu}}, {{{5, 33}}, {{33, 17}}, {{17}}}},
      // More rows than a backend may call few.
      {"relu, many rows", Dense{{relu}}, {{{130, 9}}, {{9, 17}}, {{17}}}},
      {"plain", DenseInputGradient{}, {{{3, 10}}, {{13, 10}}}, {{{3, 13}}}},
      {"no bias", DenseWeightGradient{}, {{{7, 13}}, {{7, 10}}}, {{{13, 10}}}},
      {"odd extents", DenseWeightGradient{}, {{{3, 33}}, {{3, 17}}}, {{{33, 17}}, {{17}}}},
      // Of more rows than a backend makes at a time, where it makes the gradient by strips.
      {"strips", DenseWeightGradient{}, {{{3, 300}}, {{3, 2050}}}, {{{300, 2050}}, {{2050}}}},
  };
}

}  // namespace ringmaster::graph
