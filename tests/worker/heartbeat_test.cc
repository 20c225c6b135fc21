#include "worker/heartbeat.h"

#include <catch2/catch.hpp>

#include "tests/support/tally.h"

namespace ringmaster::worker {
namespace {

using std::chrono::milliseconds;
using testing::Tally;

constexpr std::chrono::hours kAnHour{1};

// Counts what is sent.
std::function<void(v1::WorkerMessage)> Into(Tally& beats) {
  return [&beats](const v1::WorkerMessage& message) {
    if (message.heartbeat().job_id() == "j1") beats.Add();
  };
}

v1::Heartbeat OfJob() {
  v1::Heartbeat heartbeat;
  heartbeat.set_job_id("j1");
  return heartbeat;
}

}  // namespace

TEST_CASE("Heartbeat: the first of a session comes at once, and a new interval counts at once") {
  Tally beats;
  Heartbeat heartbeat(OfJob, Into(beats));
  heartbeat.Start();
  heartbeat.SetInterval(kAnHour);
  REQUIRE(beats.Await(1));
  heartbeat.SetInterval(milliseconds(1));
  REQUIRE(beats.Await(5));
  heartbeat.SetInterval(std::nullopt);
  const int ended = beats.count();
  heartbeat.SetInterval(kAnHour);
  REQUIRE(beats.Await(ended + 1));
}

TEST_CASE("Heartbeat: outside a session there are none") {
  Tally beats;
  Heartbeat heartbeat(OfJob, Into(beats));
  heartbeat.Start();
  heartbeat.SetInterval(std::nullopt);
  heartbeat.Stop();
  CHECK(beats.count() == 0);
}

}  // namespace ringmaster::worker
