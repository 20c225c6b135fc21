#include "common/edit_distance.h"

#include <catch2/catch.hpp>

namespace ringmaster {
namespace {

TEST_CASE("EditDistance: counts insertions, deletions and replacements") {
  CHECK(EditDistance("", "") == 0);
  CHECK(EditDistance("", "abc") == 3);
  CHECK(EditDistance("abc", "") == 3);
  CHECK(EditDistance("alexnet", "alexnet") == 0);
  CHECK(EditDistance("alexnte", "alexnet") == 2);
  CHECK(EditDistance("kitten", "sitting") == 3);
}

}  // namespace
}  // namespace ringmaster
