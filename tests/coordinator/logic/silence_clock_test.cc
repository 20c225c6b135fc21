#include "coordinator/logic/fleet.h"

#include <catch2/catch.hpp>

namespace ringmaster::coordinator {
namespace {

using Time = SilenceClock::Time;

TEST_CASE("SilenceClock: it goes on while events are handled as they come") {
  SilenceClock clock;
  CHECK(clock.At(Time(1'000), Time(0)) == Time(1'000));
  CHECK(clock.At(Time(1'100), Time(0)) == Time(1'100));
  CHECK(clock.TakeStood(Time(1)) == Time(0));
}

TEST_CASE("SilenceClock: an event counts when it came") {
  SilenceClock clock;
  (void)clock.At(Time(1'000), Time(0));
  CHECK(clock.At(Time(1'100), Time(80)) == Time(1'020));
  CHECK(clock.At(Time(1'110), Time(0)) == Time(1'110));
}

TEST_CASE("SilenceClock: it stands still for as long as nothing was handled") {
  SilenceClock clock;
  (void)clock.At(Time(1'000), Time(0));
  CHECK(clock.At(Time(1'400), Time(0)) == Time(1'000));
  CHECK(clock.At(Time(1'450), Time(0)) == Time(1'050));
}

TEST_CASE("SilenceClock: many short waits in a row are no time either") {
  SilenceClock clock;
  Time shown = clock.At(Time(0), Time(0));
  // Each event is handled 20 ms after the one before, and each had waited for a while.
  for (int i = 1; i <= 100; ++i) shown = clock.At(Time(20 * i), Time(101));
  CHECK(shown == Time(0));
  CHECK(clock.At(Time(2'020), Time(0)) == Time(20));
}

TEST_CASE("SilenceClock: what it stood still is told once, when it is enough") {
  SilenceClock clock;
  (void)clock.At(Time(0), Time(0));
  (void)clock.At(Time(300), Time(0));
  CHECK(clock.TakeStood(Time(500)) == Time(0));
  (void)clock.At(Time(600), Time(0));
  CHECK(clock.TakeStood(Time(500)) == Time(600));
  CHECK(clock.TakeStood(Time(500)) == Time(0));
}

}  // namespace
}  // namespace ringmaster::coordinator
