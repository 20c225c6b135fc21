#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {

std::vector<OpCase> BoxCases() {
  return {
      {"channels", Concat{3}, {{{2, 3, 2, 3}}, {{2, 3, 2, 5}}}},
      {"height, three operands", Concat{1}, {{{2, 3, 2, 3}}, {{2, 1, 2, 3}}, {{2, 4, 2, 3}}}},
      {"features of many samples", Concat{1}, {{{70, 129}}, {{70, 1}}}},
      {"channels, packs", Concat{3}, {{{2, 3, 2, 16}}, {{2, 3, 2, 8}}, {{2, 3, 2, 4}}}},
      {"channels", Split{3, {1, 4, 2}}, {{{2, 3, 2, 7}}}},
      {"width", Split{2, {3, 1}}, {{{2, 3, 4, 5}}}},
      {"one part", Split{1, {6}}, {{{3, 6}}}},
      {"many channels", Split{3, {64, 65}}, {{{2, 9, 9, 129}}}},
      {"channels, packs", Split{3, {8, 16}}, {{{2, 3, 2, 24}}}},
      {"inside", Slice{{1, 2, 1}, {3, 4, 2}}, {{{2, 4, 5, 3}}}},
      {"a column", Slice{{2}, {3}}, {{{5, 7}}}},
      {"all but a row and a column", Slice{{1, 1, 0}, {9, 9, 65}}, {{{3, 9, 9, 65}}}},
      {"a channel", Slice{{0, 0, 4}, {2, 3, 5}}, {{{2, 2, 3, 5}}}},
      {"all", Slice{{0, 0}, {3, 5}}, {{{2, 3, 5}}}},
      {"round an image", Pad{{1, 2, 0, 3, 1, 0}}, {{{2, 3, 2, 3}}}},
      {"channels behind", Pad{{0, 0, 0, 0, 0, 4}}, {{{2, 3, 3, 5}}}},
      {"right and below, many channels", Pad{{0, 0, 0, 1, 1, 0}}, {{{3, 9, 8, 65}}}},
      {"round an image, packs", Pad{{1, 1, 0, 1, 2, 0}}, {{{2, 3, 2, 16}}}},
      {"round an image of one channel", Pad{{1, 1, 0, 1, 1, 0}}, {{{2, 3, 4, 1}}}},
      {"nothing", Pad{{0, 0, 0, 0}}, {{{2, 3, 5}}}},
      {"features", Pad{{3, 2}}, {{{5, 7}}}},
  };
}

std::vector<OpCase> ReshapeCases() {
  return {
      {"to a matrix", Reshape{}, {{{2, 3, 4, 2}}}, {{{2, 24}}}},
      {"odd extents", Reshape{}, {{{3, 5, 2, 7}}}, {{{3, 70}}}},
  };
}

}  // namespace ringmaster::graph
