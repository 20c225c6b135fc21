#include "bench/quantile.h"

#include <catch2/catch.hpp>

namespace ringmaster::bench {
namespace {

TEST_CASE("Quantile: ends, middle, and between two values") {
  const std::vector<double> values = {40, 10, 30, 20};
  CHECK(Quantile(values, 0) == 10);
  CHECK(Quantile(values, 1) == 40);
  CHECK(Quantile(values, 0.5) == 25);
  CHECK(Quantile(values, 0.1) == Approx(13));
  CHECK(Quantile(values, 0.9) == Approx(37));
  CHECK(Quantile({1, 2, 100}, 0.5) == 2);
}

TEST_CASE("Quantile: of one value that value") {
  for (const double q : {0.0, 0.1, 0.5, 1.0}) CHECK(Quantile({7}, q) == 7);
}

}  // namespace
}  // namespace ringmaster::bench
