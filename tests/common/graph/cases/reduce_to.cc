#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {
namespace {

OpCase SumCase(const char* what, const Shape& x, const Shape& y) {
  return {.what = what, .kind = ReduceTo{}, .inputs = {{x}}, .wanted = {{y}}, .forward_only = true};
}

}  // namespace

std::vector<OpCase> ReduceToCases() {
  return {
      SumCase("height and width", {2, 5, 7, 19}, {2, 1, 1, 19}),
      SumCase("channels", {3, 5, 7, 19}, {3, 5, 7, 1}),
      SumCase("width and channels", {2, 3, 5, 7}, {2, 3, 1, 1}),
      SumCase("height and channels", {2, 5, 3, 11}, {2, 1, 3, 1}),
      SumCase("all of a sample", {3, 4, 5, 6}, {3, 1, 1, 1}),
      SumCase("many rows, several blocks", {300, 7, 1100}, {7, 1100}),
      SumCase("to a vector", {20, 9, 9, 64}, {64}),
      SumCase("to one element", {50, 3, 41}, {1}),
      SumCase("nothing", {2, 3, 5}, {2, 3, 5}),
  };
}

}  // namespace ringmaster::graph
