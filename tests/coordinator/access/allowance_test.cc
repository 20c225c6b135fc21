#include "coordinator/access/allowance.h"

#include <catch2/catch.hpp>

namespace ringmaster::coordinator {
namespace {

using std::chrono::milliseconds;

constexpr UnixTime kBegin{milliseconds(1'000'000)};

TEST_CASE("Allowance: so many within a time, for each key") {
  Allowance allowance(2, milliseconds(100));
  CHECK(allowance.Take("a", kBegin));
  CHECK_FALSE(allowance.IsSpent("a", kBegin));
  CHECK(allowance.Take("a", kBegin + milliseconds(50)));
  CHECK(allowance.IsSpent("a", kBegin + milliseconds(99)));
  CHECK_FALSE(allowance.Take("a", kBegin + milliseconds(99)));
  CHECK(allowance.Take("b", kBegin + milliseconds(99)));
  CHECK_FALSE(allowance.IsSpent("a", kBegin + milliseconds(100)));
  CHECK(allowance.Take("a", kBegin + milliseconds(100)));
  CHECK_FALSE(allowance.Take("a", kBegin + milliseconds(149)));
  CHECK(allowance.TakeRefused("a") == 2);
  CHECK(allowance.TakeRefused("a") == 0);
  CHECK(allowance.TakeRefused("nobody") == 0);
}

TEST_CASE("Allowance: a clock that is set back locks nobody out") {
  Allowance allowance(1, milliseconds(100));
  CHECK(allowance.Take("a", kBegin + milliseconds(1'000)));
  CHECK(allowance.Take("a", kBegin));
  CHECK_FALSE(allowance.Take("a", kBegin + milliseconds(1)));
}

TEST_CASE("Allowance: of many keys it forgets the one that was seen longest ago") {
  Allowance allowance(1, milliseconds(100), 2);
  CHECK(allowance.Take("a", kBegin));
  CHECK(allowance.Take("b", kBegin + milliseconds(1)));
  CHECK_FALSE(allowance.Take("a", kBegin + milliseconds(2)));
  CHECK(allowance.Take("c", kBegin + milliseconds(3)));
  CHECK(allowance.IsSpent("a", kBegin + milliseconds(3)));
  CHECK_FALSE(allowance.IsSpent("b", kBegin + milliseconds(3)));
}

}  // namespace
}  // namespace ringmaster::coordinator
