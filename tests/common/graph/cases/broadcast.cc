#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {

std::vector<OpCase> BroadcastCases(const Kind& kind) {
  return {
      {"one number a sample", kind, {{{3, 4, 5}}, {{3, 1, 1}}}},
      {"one number a channel of a sample", kind, {{{2, 3, 2, 5}}, {{2, 1, 1, 5}}}},
      {"channels broadcast", kind, {{{2, 3, 2, 5}}, {{2, 3, 2, 1}}}},
      {"a is broadcast", kind, {{{2, 1, 5}}, {{2, 7, 5}}}},
      {"both are broadcast", kind, {{{2, 3, 1, 5}}, {{2, 1, 4, 1}}}},
      {"a vector for the last axis", kind, {{{3, 2, 7}}, {{7}}}},
      {"a matrix for the last axes", kind, {{{3, 4, 5}}, {{4, 5}}}},
      {"the parameter first", kind, {{{4, 5}}, {{3, 4, 5}}}},
      {"many channels", kind, {{{2, 9, 9, 129}}, {{2, 1, 1, 129}}}},
      {"rows longer than a piece", kind, {{{2, 2, 9001}}, {{2, 1, 9001}}}},
      {"one number a place of 24 channels", kind, {{{2, 1, 3, 24}}, {{2, 1, 3, 1}}}},
      {"one number a channel, 24 of them", kind, {{{2, 1, 1, 24}}, {{2, 2, 2, 24}}}},
      {"both are broadcast, 16 channels", kind, {{{3, 30, 1, 16}}, {{3, 1, 20, 16}}}},
  };
}

std::vector<OpCase> AddCases() {
  std::vector<OpCase> cases = {
      {"matrices", Add{}, {{{3, 4}}, {{3, 4}}}},
      {"odd shape", Add{}, {{{3, 5, 7}}, {{3, 5, 7}}}},
      {"a tail after many vectors", Add{}, {{{2, 4099}}, {{2, 4099}}}},
  };
  for (OpCase& test : BroadcastCases(Add{})) cases.push_back(std::move(test));
  for (int64_t count : kElementCounts) {
    const TensorType x = {{1, count}};
    cases.push_back({.what = std::to_string(count) + " elements",
                     .kind = Add{},
                     .inputs = {x, x},
                     .same_bits = true});
  }
  return cases;
}

std::vector<OpCase> MultiplyCases() {
  std::vector<OpCase> cases = {
      {"matrices", Multiply{}, {{{3, 4}}, {{3, 4}}}},
      {"a tail after many vectors", Multiply{}, {{{2, 4099}}, {{2, 4099}}}},
  };
  for (OpCase& test : BroadcastCases(Multiply{})) cases.push_back(std::move(test));
  return cases;
}

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
      SumCase("two axes apart, 24 channels", {40, 9, 20, 24}, {9, 1, 24}),
      SumCase("height and channels of many", {2, 130, 3, 70}, {2, 1, 3, 1}),
  };
}

}  // namespace ringmaster::graph
