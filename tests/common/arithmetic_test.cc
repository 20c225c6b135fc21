#include "common/numeric/arithmetic.h"

#include <catch2/catch.hpp>

#include <vector>

namespace ringmaster {
namespace {

double Sum(const std::vector<double>& values) {
  return LaneSum(values.size(), [&](size_t i) { return values[i]; });
}

TEST_CASE("Lane sum: whole numbers add up, whatever the length") {
  for (const size_t n : {0, 1, 7, 8, 9, 255, 256, 257, 1000, 5000}) {
    std::vector<double> values(n);
    for (size_t i = 0; i < n; ++i) values[i] = static_cast<double>(i);
    CHECK(Sum(values) == static_cast<double>(n) * (static_cast<double>(n) - 1) / 2);
  }
}

// The order is seen in what cancels: 2^60 swallows a 1 that is added to it.
TEST_CASE("Lane sum: element i goes to lane i mod 8, and lanes join in pairs") {
  constexpr double kBig = 0x1p60;
  std::vector<double> values(16, 0.0);
  values[0] = kBig, values[8] = -kBig, values[1] = 1;
  CHECK(Sum(values) == 1);  // one lane: gone before the 1 comes
  values[8] = 0, values[9] = -kBig;
  CHECK(Sum(values) == 0);  // lane 1 holds 1 - 2^60 = -2^60
  values = std::vector<double>(16, 0.0);
  values[0] = kBig, values[1] = -kBig, values[2] = 1;
  CHECK(Sum(values) == 1);  // (0 + 1) + (2 + 3)
  values = std::vector<double>(16, 0.0);
  values[0] = kBig, values[2] = -kBig, values[1] = 1;
  CHECK(Sum(values) == 0);  // 1 is swallowed by its pair
}

TEST_CASE("Lane sum: blocks join in a pairwise tree") {
  constexpr double kBig = 0x1p60;
  std::vector<double> values(4 * kLaneSumBlock, 0.0);
  const auto block = [&](size_t b) -> double& { return values[b * kLaneSumBlock]; };
  block(0) = kBig, block(1) = -kBig, block(2) = 1;
  CHECK(Sum(values) == 1);
  block(1) = 1, block(2) = -kBig;
  CHECK(Sum(values) == 0);
  values.resize(3 * kLaneSumBlock);  // a third block does not move the first two
  block(1) = -kBig, block(2) = 1;
  CHECK(Sum(values) == 1);
}

}  // namespace
}  // namespace ringmaster
