#include "coordinator/logic/suspicions.h"

#include <catch2/catch.hpp>

#include "tests/coordinator/logic/moment.h"

namespace ringmaster::coordinator {
namespace {

TEST_CASE("Suspicions: a second time within ten seconds is again, whoever accuses") {
  Suspicions suspicions;
  CHECK_FALSE(suspicions.Add({"a", "b"}, AtMs(0)));
  CHECK(suspicions.Add({"b", "a"}, AtMs(10'000)));
  CHECK_FALSE(suspicions.Add({"a", "b"}, AtMs(20'001)));
  CHECK_FALSE(suspicions.Add({"a", "c"}, AtMs(20'001)));
}

TEST_CASE("Suspicions: accusers are counted once each, for ten seconds") {
  Suspicions suspicions;
  (void)suspicions.Add({"a", "b"}, AtMs(0));
  (void)suspicions.Add({"c", "b"}, AtMs(1'000));
  (void)suspicions.Add({"c", "b"}, AtMs(2'000));
  CHECK(suspicions.AccusersOf("b", AtMs(2'000)) == 2);
  CHECK(suspicions.AccusersOf("b", AtMs(10'001)) == 1);
  CHECK(suspicions.AccusersOf("a", AtMs(2'000)) == 0);
}

TEST_CASE("Suspicions: a bad link is remembered for a while, or until one of its ends is out") {
  Suspicions suspicions;
  (void)suspicions.Add({"b", "a"}, AtMs(0));
  (void)suspicions.Add({"c", "d"}, AtMs(0));
  CHECK(suspicions.BadPairs(AtMs(300'000)) == std::set<BadPair>{{"a", "b"}, {"c", "d"}});
  CHECK(suspicions.BadPairs(AtMs(300'001)).empty());
  suspicions.Forget("b");
  CHECK(suspicions.BadPairs(AtMs(1)) == std::set<BadPair>{{"c", "d"}});
}

}  // namespace
}  // namespace ringmaster::coordinator
