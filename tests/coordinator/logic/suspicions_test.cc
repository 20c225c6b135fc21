#include "coordinator/logic/suspicions.h"

#include <catch2/catch.hpp>

namespace ringmaster::coordinator {
namespace {

Now At(int64_t ms) { return {std::chrono::milliseconds(ms), 0}; }

TEST_CASE("Suspicions: a second time within ten seconds is again, whoever accuses") {
  Suspicions suspicions;
  CHECK_FALSE(suspicions.Add({"a", "b"}, At(0)));
  CHECK(suspicions.Add({"b", "a"}, At(10'000)));
  CHECK_FALSE(suspicions.Add({"a", "b"}, At(20'001)));
  CHECK_FALSE(suspicions.Add({"a", "c"}, At(20'001)));
}

TEST_CASE("Suspicions: accusers are counted once each, for ten seconds") {
  Suspicions suspicions;
  (void)suspicions.Add({"a", "b"}, At(0));
  (void)suspicions.Add({"c", "b"}, At(1'000));
  (void)suspicions.Add({"c", "b"}, At(2'000));
  CHECK(suspicions.AccusersOf("b", At(2'000)) == 2);
  CHECK(suspicions.AccusersOf("b", At(10'001)) == 1);
  CHECK(suspicions.AccusersOf("a", At(2'000)) == 0);
}

TEST_CASE("Suspicions: a bad link is remembered for a while, or until one of its ends is out") {
  Suspicions suspicions;
  (void)suspicions.Add({"b", "a"}, At(0));
  (void)suspicions.Add({"c", "d"}, At(0));
  CHECK(suspicions.BadPairs(At(300'000)) == std::set<BadPair>{{"a", "b"}, {"c", "d"}});
  CHECK(suspicions.BadPairs(At(300'001)).empty());
  suspicions.Forget("b");
  CHECK(suspicions.BadPairs(At(1)) == std::set<BadPair>{{"c", "d"}});
}

}  // namespace
}  // namespace ringmaster::coordinator
