#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {

std::vector<OpCase> DropoutCases() {
  std::vector<OpCase> cases = {
      {"images", Dropout{{0.4, "dropout"}}, {{{2, 3, 4, 2}}}},
      {"odd shape", Dropout{{0.3, "layer"}}, {{{3, 5, 7}}}},
      {"odd shape", DropoutGradient{{0.3, "layer"}}, {{{3, 5, 7}}}},
      {"nothing drops, no name", Dropout{{0, ""}}, {{{9, 8}}}},
      {"many blocks", Dropout{{0.5, "a layer whose name is long"}}, {{{2, 4104}}}},
      {"many blocks, a short name", Dropout{{0.3, "dropout1"}}, {{{2, 4104}}}},
      {"many rows, a short name", Dropout{{0.3, "dropout1"}}, {{{70, 8}}}},
  };
  for (const Shape& shape : {Shape{3, 5, 7}, {5, 4096}, {2, 33, 3}, {70, 8}, {2, 9000}}) {
    for (double rate : {0.0, 0.2, 0.3, 0.5, 0.97}) {
      cases.push_back({fmt::format("rate {} of {}", rate, ToString(shape)),
                       Dropout{{rate, "a layer whose name takes two blocks of 64"}},
                       {{shape}}});
    }
  }
  cases.push_back({"per sample", Dropout{{0.4, "layer", true}}, {{{9, 3, 5}}}});
  cases.push_back({"per sample, many elements", Dropout{{0.2, "layer", true}}, {{{20, 1025}}}});
  cases.push_back({"per sample, packs", Dropout{{0.3, "layer", true}}, {{{20, 4, 16}}}});
  cases.push_back({"per sample", DropoutGradient{{0.4, "layer", true}}, {{{9, 3, 5}}}});
  for (OpCase& test : cases) test.same_bits = true;
  return cases;
}

}  // namespace ringmaster::graph
