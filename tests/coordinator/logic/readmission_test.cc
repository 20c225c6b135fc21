#include "coordinator/logic/readmission.h"

#include <catch2/catch.hpp>

#include "tests/coordinator/logic/moment.h"

namespace ringmaster::coordinator {
namespace {

using std::chrono::milliseconds;

TEST_CASE("Readmission: a bar lasts twice as long each time, at most 5 minutes") {
  Readmission readmission;
  CHECK(readmission.Bar("a", "x", AtMs(0)) == milliseconds(1'000));
  CHECK(readmission.Barred("a", "x", AtMs(999)));
  CHECK_FALSE(readmission.Barred("a", "x", AtMs(1'000)));
  CHECK_FALSE(readmission.Barred("b", "x", AtMs(0)));
  CHECK(readmission.Bar("a", "x", AtMs(2'000)) == milliseconds(2'000));
  for (int i = 0; i < 10; ++i) readmission.Bar("a", "x", AtMs(3'000));
  CHECK(readmission.Bar("a", "x", AtMs(4'000)) == milliseconds(300'000));
}

TEST_CASE("Readmission: a new process of that name has a clean record") {
  Readmission readmission;
  readmission.Bar("a", "x", AtMs(0));
  readmission.Bar("a", "x", AtMs(0));
  CHECK_FALSE(readmission.Barred("a", "y", AtMs(0)));
  CHECK(readmission.Bar("a", "y", AtMs(0)) == milliseconds(1'000));
}

TEST_CASE(
    "Readmission: the end of a bar is said once, and the coordinator's own delay counts not") {
  Readmission readmission;
  CHECK_FALSE(readmission.TakeEnded(AtMs(0)));
  readmission.Bar("a", "x", AtMs(0));
  readmission.Excuse(milliseconds(500));
  CHECK_FALSE(readmission.TakeEnded(AtMs(1'400)));
  CHECK(readmission.TakeEnded(AtMs(1'500)));
  CHECK_FALSE(readmission.TakeEnded(AtMs(1'600)));
}

}  // namespace
}  // namespace ringmaster::coordinator
