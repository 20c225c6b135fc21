#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {

// kFloat32 being every type in turn, the sweeps together reach each pair.
std::vector<OpCase> CastCases() {
  constexpr DType kSwept = DType::kFloat32;
  std::vector<OpCase> cases = {
      {"to the same type", Cast{}, {{{3, 4}}}, {{{}, kSwept}}},
      {"many rows", Cast{}, {{{9001}}}, {{{}, kSwept}}},
  };
  struct {
    DType from, to;
  } constexpr pairs[] = {{kSwept, kSwept},
                         {kSwept, DType::kBFloat16},
                         {kSwept, DType::kFloat16},
                         {DType::kBFloat16, kSwept},
                         {DType::kFloat16, kSwept}};
  for (const auto& [from, to] : pairs) {
    for (int64_t count : kElementCounts) {
      cases.push_back({.what = fmt::format("{} elements, {} to {}", count, Name(from), Name(to)),
                       .kind = Cast{},
                       .inputs = {{{1, count}, from}},
                       .wanted = {{{1, count}, to}},
                       .same_bits = true});
    }
  }
  return cases;
}

}  // namespace ringmaster::graph
