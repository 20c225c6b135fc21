#include "worker/ring/grpc/ending_streams.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

namespace ringmaster::ring {
namespace {

using std::chrono::hours;
using std::chrono::steady_clock;

const auto kPast = steady_clock::time_point();

// A stream that is over when the test says so, or when it is aborted and does not resist.
struct FakeStream {
  std::atomic<bool> done = false;
  std::atomic<int> aborts = 0;
  bool resists = false;

  EndingStreams::Ending EndingAt(steady_clock::time_point until) {
    return {.whose = "a fake",
            .wait_done = [this](steady_clock::time_point /*deadline*/) { return done.load(); },
            .abort =
                [this]() {
                  ++aborts;
                  if (!resists) done = true;
                },
            .until = until};
  }
};

}  // namespace

TEST_CASE("EndingStreams: what is over in time is not aborted, what is late is, once") {
  EndingStreams streams;
  FakeStream in_time, late, resists;
  resists.resists = true;
  streams.Add(in_time.EndingAt(steady_clock::now() + hours(1)));
  streams.Add(late.EndingAt(kPast));
  streams.Add(resists.EndingAt(kPast));
  CHECK(streams.Tend(kPast));
  CHECK(streams.Tend(kPast));
  CHECK(in_time.aborts == 0);
  CHECK(late.aborts == 1);
  CHECK(resists.aborts == 1);
  in_time.done = true;
  resists.done = true;
  streams.Stop();
  CHECK(in_time.aborts == 0);
  CHECK(resists.aborts == 1);
}

TEST_CASE("EndingStreams: one that is over already is not kept") {
  EndingStreams streams;
  FakeStream over;
  over.done = true;
  streams.Add(over.EndingAt(kPast));
  over.done = false;
  CHECK(streams.Tend(kPast));
  streams.Stop();
  CHECK(over.aborts == 0);
}

TEST_CASE("EndingStreams: a new one, and the stop, wake whoever tends") {
  EndingStreams streams;
  FakeStream late;
  auto tending = std::async(std::launch::async, [&]() {
    while (streams.Tend(steady_clock::now() + hours(1))) {
    }
  });
  streams.Add(late.EndingAt(kPast));
  while (late.aborts == 0) std::this_thread::yield();
  streams.Stop();
  tending.get();
  CHECK(late.aborts == 1);
}

TEST_CASE("EndingStreams: a stop aborts what does not end") {
  EndingStreams streams;
  FakeStream stuck;
  streams.Add(stuck.EndingAt(kPast));
  streams.Stop();
  CHECK(stuck.aborts == 1);
  CHECK_FALSE(streams.Tend(kPast));
  FakeStream after;
  streams.Add(after.EndingAt(kPast));
  CHECK(after.aborts == 1);
}

TEST_CASE("EndingStreams: of too many the oldest is aborted early") {
  EndingStreams streams;
  std::vector<FakeStream> many(65);
  for (FakeStream& stream : many) streams.Add(stream.EndingAt(steady_clock::now() + hours(1)));
  CHECK(streams.Tend(kPast));
  CHECK(many[0].aborts == 1);
  for (size_t i = 1; i < many.size(); ++i) {
    REQUIRE(many[i].aborts == 0);
    many[i].done = true;
  }
  streams.Stop();
}

}  // namespace ringmaster::ring
