#include "coordinator/logic/run/agreement.h"

#include <catch2/catch.hpp>

namespace ringmaster::coordinator {
namespace {

TEST_CASE("StateDigests: two that differ at one step are named, in whatever order steps come") {
  StateDigests digests;
  CHECK(digests.Add(9, "a", "x").ok());
  CHECK(digests.Add(4, "b", "y").ok());
  CHECK(digests.Add(4, "a", "y").ok());
  CHECK(digests.Add(9, "a", "x").ok());
  const Status status = digests.Add(9, "b", "z");
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(Message(status), Catch::Contains("digest(9) is 78 on worker a, but 7a on worker b"));
}

TEST_CASE("StateDigests: after a rewind what is said is compared, however much was said before") {
  StateDigests digests;
  for (uint64_t step = 1; step <= 5'000; ++step) CHECK(digests.Add(step, "a", "x").ok());
  digests.GoOnFrom(3'000);
  for (uint64_t step = 3'001; step <= 4'000; ++step) {
    CHECK(digests.Add(step, "a", "x").ok());
    CHECK_FALSE(digests.Add(step, "b", "y").ok());
  }
}

TEST_CASE("StateDigests: what was said of steps after a rewind holds for nobody") {
  StateDigests digests;
  CHECK(digests.Add(5, "lost", "x").ok());
  CHECK(digests.Add(6, "lost", "wrong").ok());
  digests.GoOnFrom(5);
  CHECK(digests.Add(6, "a", "right").ok());
  CHECK_FALSE(digests.Add(5, "a", "y").ok());
}

TEST_CASE("StateDigests: of many steps those that were spoken of last are remembered") {
  StateDigests digests;
  CHECK(digests.Add(1'000'000, "a", "x").ok());
  for (uint64_t step = 1; step <= 256; ++step) CHECK(digests.Add(step, "a", "x").ok());
  CHECK(digests.Add(1'000'000, "b", "y").ok());  // forgotten: the oldest, not the smallest
  CHECK_FALSE(digests.Add(256, "b", "y").ok());
  CHECK_FALSE(digests.Add(3, "b", "y").ok());
}

TEST_CASE("StateDigests: of at least three who differ those that are alone are the minority") {
  StateDigests digests;
  for (const char* worker : {"a", "b", "c"}) CHECK(digests.Add(4, worker, "x").ok());
  CHECK(digests.Add(6, "a", "y").ok());
  CHECK_FALSE(digests.Add(6, "b", "z").ok());
  CHECK(digests.Minority().empty());  // of two
  CHECK(digests.Add(6, "c", "y").ok());
  CHECK(digests.Minority() == std::vector<std::string>{"b"});
  CHECK_FALSE(digests.Add(6, "d", "z").ok());
  CHECK(digests.Minority().empty());  // two against two
  CHECK(digests.AgreedBefore(6) == 4);
  CHECK(digests.AgreedBefore(4) == 0);
  CHECK(digests.AgreedBefore(100) == 4);
}

}  // namespace
}  // namespace ringmaster::coordinator
