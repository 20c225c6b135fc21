#include "cli/cpu_lists.h"

#include <catch2/catch.hpp>

namespace ringmaster::cli {
namespace {

using Lists = std::vector<std::string>;

TEST_CASE("CpuLists: disjoint and in order, from what this process may use") {
  CHECK(DisjointCpuLists({0, 1, 4, 5, 8}, 2, 2) == Lists{"0,1", "4,5"});
  CHECK(DisjointCpuLists({3}, 1, 1) == Lists{"3"});
}

TEST_CASE("CpuLists: nobody is pinned when there are not enough for all") {
  CHECK(DisjointCpuLists({0, 1}, 3, 1).empty());
  CHECK(DisjointCpuLists({0, 1}, 4096, 4096).empty());
  CHECK(DisjointCpuLists({}, 1, 1).empty());
}

}  // namespace
}  // namespace ringmaster::cli
