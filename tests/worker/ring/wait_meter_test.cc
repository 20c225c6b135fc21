#include "worker/ring/wait_meter.h"

#include <catch2/catch.hpp>

namespace ringmaster::ring {
namespace {

WaitMeter::Clock::time_point At(int seconds) {
  return WaitMeter::Clock::time_point(std::chrono::seconds(seconds));
}

TEST_CASE("WaitMeter: only what lies after the named moment counts") {
  WaitMeter meter;
  meter.Add(At(0), At(1));
  REQUIRE(meter.seconds() == 0);
  meter.CountFrom(At(10));
  meter.Add(At(2), At(9));  // ended before
  REQUIRE(meter.seconds() == 0);
  meter.Add(At(8), At(12));  // was under way
  REQUIRE(meter.seconds() == 2);
  meter.Add(At(12), At(12));
  meter.Add(At(13), At(16));
  REQUIRE(meter.seconds() == 5);
  meter.Reset();
  REQUIRE(meter.seconds() == 0);
  meter.Add(At(17), At(20));
  REQUIRE(meter.seconds() == 0);
}

}  // namespace
}  // namespace ringmaster::ring
