#include "worker/ring/beat_monitor.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace ringmaster::ring {
namespace {

using std::chrono::milliseconds;

// A monitor whose clock the test moves: it ticks every 50 ms, as its owner does, and at every tick
// each neighbour that beats is heard.
struct Watched {
  BeatMonitor::TimePoint now = BeatMonitor::TimePoint(std::chrono::hours(100));
  BeatMonitor monitor;
  bool successor_beats = true;
  bool predecessor_beats = true;
  milliseconds predecessor_late{0};  // every other beat of its, by this
  std::vector<Accusation> accused;
  uint64_t ticks = 0;

  explicit Watched(const std::string& successor = "b", const std::string& predecessor = "z",
                   const WatchLimits& limits = {})
      : monitor(successor, predecessor, limits, now) {}

  void Tick() {
    BeatMonitor::Verdict verdict = monitor.Tick(now);
    for (Accusation& accusation : verdict.accusations) accused.push_back(std::move(accusation));
  }
  void Run(milliseconds duration) {
    for (const auto end = now + duration; now < end; now += milliseconds(50)) {
      ++ticks;
      if (successor_beats) monitor.Heard(Edge::kSuccessor, {ticks, "compute"}, now);
      if (predecessor_beats) {
        const milliseconds late = ticks % 2 == 0 ? predecessor_late : milliseconds(0);
        monitor.Heard(Edge::kPredecessor, {ticks, "reduce"}, now + late);
      }
      Tick();
    }
  }
};

TEST_CASE("BeatMonitor: limits grow with the coordinator's, and never shrink") {
  const WatchLimits usual;
  for (const int silence : {0, 100, 500}) {
    const WatchLimits limits = LimitsFor(milliseconds(silence));
    CHECK(limits.silence == usual.silence);
    CHECK(limits.widest_silence == usual.widest_silence);
    CHECK(limits.connect == usual.connect);
    CHECK(limits.interval == usual.interval);
  }
  const WatchLimits longer = LimitsFor(milliseconds(2'500));
  CHECK(longer.silence == milliseconds(1'500));
  CHECK(longer.widest_silence == milliseconds(3'500));
  CHECK(longer.connect == milliseconds(2'000));
  CHECK(longer.interval == milliseconds(250));
  CHECK(longer.own_lateness == usual.own_lateness);
}

TEST_CASE("BeatMonitor: beats that come accuse nobody, and the own beat is due every 50 ms") {
  Watched watched;
  watched.Run(milliseconds(60'000));
  CHECK(watched.accused.empty());
  CHECK(watched.monitor.limit(Edge::kSuccessor) == milliseconds(300));
  const auto due = watched.monitor.due();
  CHECK_FALSE(watched.monitor.Tick(due - milliseconds(1)).beat);
  CHECK(watched.monitor.Tick(due).beat);
  CHECK_FALSE(watched.monitor.Tick(due).beat);
  CHECK(watched.monitor.due() == due + milliseconds(50));
}

TEST_CASE(
    "BeatMonitor: a neighbour that falls silent is accused after 300 ms, once, with its pulse") {
  Watched watched;
  watched.Run(milliseconds(1'000));
  watched.successor_beats = false;
  watched.Run(milliseconds(300));
  CHECK(watched.accused.empty());
  watched.Run(milliseconds(100));
  REQUIRE(watched.accused.size() == 1);
  CHECK(watched.accused[0].peer == "b");
  CHECK(watched.accused[0].reason ==
        "successor b is silent since 350 ms (limit 300 ms), was in compute at progress 20");
  watched.Run(milliseconds(5'000));
  CHECK(watched.accused.size() == 1);
  watched.predecessor_beats = false;
  watched.Run(milliseconds(400));
  REQUIRE(watched.accused.size() == 2);
  CHECK(watched.accused[1].peer == "z");
}

TEST_CASE("BeatMonitor: the limit is wider where beats come late, to 700 ms at most") {
  for (const auto& [late, limit] :
       {std::pair(20, 300), {37, 300}, {40, 320}, {60, 480}, {90, 700}}) {
    Watched watched;
    watched.predecessor_late = milliseconds(late);
    watched.Run(milliseconds(1'000));
    CHECK(watched.monitor.limit(Edge::kPredecessor) == milliseconds(limit));
    CHECK(watched.monitor.limit(Edge::kSuccessor) == milliseconds(300));
    watched.predecessor_late = milliseconds(0);
    watched.Run(milliseconds(100));
    watched.predecessor_beats = false;
    watched.Run(milliseconds(limit - limit % 50));
    CHECK(watched.accused.empty());
    watched.Run(milliseconds(100));
    CHECK(watched.accused.size() == 1);
  }
}

TEST_CASE("BeatMonitor: a process that was late itself accuses nobody, and counts anew") {
  Watched watched;
  watched.Run(milliseconds(1'000));
  watched.now += milliseconds(2'000);  // it stood still
  watched.Tick();
  CHECK(watched.accused.empty());
  watched.now = watched.monitor.due();
  watched.successor_beats = false;
  watched.predecessor_beats = false;
  watched.Run(milliseconds(250));
  CHECK(watched.accused.empty());
  watched.Run(milliseconds(150));
  CHECK(watched.accused.size() == 2);
}

TEST_CASE("BeatMonitor: beats that arrive while the own tick is overdue widen no limit") {
  Watched watched;
  watched.Run(milliseconds(1'000));
  watched.now += milliseconds(2'000);
  watched.Run(milliseconds(1'000));
  CHECK(watched.monitor.limit(Edge::kSuccessor) == milliseconds(300));
}

TEST_CASE("BeatMonitor: a lateness of 150 ms is none") {
  Watched watched;
  watched.Run(milliseconds(1'000));
  watched.successor_beats = false;
  watched.Run(milliseconds(200));
  watched.now = watched.monitor.due() + milliseconds(150);
  watched.Tick();
  REQUIRE(watched.accused.size() == 1);
  CHECK(watched.accused[0].peer == "b");
}

TEST_CASE("BeatMonitor: a broken stream is accused at the next tick, also when that is early") {
  Watched watched;
  watched.Run(milliseconds(1'000));
  watched.monitor.Broke(Edge::kPredecessor, "connection reset");
  watched.now = watched.monitor.due() - milliseconds(30);
  watched.Tick();
  REQUIRE(watched.accused.size() == 1);
  CHECK(watched.accused[0].peer == "z");
  CHECK(watched.accused[0].reason ==
        "predecessor z is lost: its pulse stream broke: connection reset");
  watched.Run(milliseconds(2'000));
  CHECK(watched.accused.size() == 1);
}

TEST_CASE("BeatMonitor: a break that a late process finds is accused when it is on time again") {
  Watched watched;
  watched.Run(milliseconds(1'000));
  watched.now += milliseconds(2'000);
  watched.monitor.Broke(Edge::kSuccessor, "connection reset");
  watched.Tick();
  CHECK(watched.accused.empty());
  watched.now = watched.monitor.due();
  watched.Tick();
  CHECK(watched.accused.size() == 1);
}

TEST_CASE("BeatMonitor: a neighbour that said goodbye is not accused, whatever happens then") {
  Watched watched;
  watched.Run(milliseconds(1'000));
  watched.monitor.Left(Edge::kSuccessor);
  watched.monitor.Broke(Edge::kSuccessor, "connection reset");
  watched.successor_beats = false;
  watched.Run(milliseconds(20'000));
  CHECK(watched.accused.empty());
}

TEST_CASE(
    "BeatMonitor: a neighbour that has not connected has 400 ms for it, one that has 300 ms") {
  Watched watched;
  watched.successor_beats = false;
  watched.predecessor_beats = false;
  watched.monitor.Connected(Edge::kPredecessor, watched.now);
  watched.Run(milliseconds(400));
  REQUIRE(watched.accused.size() == 1);
  CHECK(watched.accused[0].reason ==
        "predecessor z is silent since 350 ms (limit 300 ms), and never sent a beat");
  watched.Run(milliseconds(100));
  REQUIRE(watched.accused.size() == 2);
  CHECK(watched.accused[1].reason == "successor b has not connected its pulse for 450 ms");
}

TEST_CASE("BeatMonitor: in a ring of two the peer of both edges is accused once") {
  Watched watched("b", "b");
  watched.Run(milliseconds(1'000));
  watched.monitor.Broke(Edge::kPredecessor, "reset");
  watched.Tick();
  watched.monitor.Broke(Edge::kSuccessor, "reset");
  watched.successor_beats = false;
  watched.Run(milliseconds(1'000));
  CHECK(watched.accused.size() == 1);

  Watched left("b", "b");
  left.Run(milliseconds(1'000));
  left.monitor.Left(Edge::kPredecessor);
  left.successor_beats = false;
  left.Run(milliseconds(1'000));
  CHECK(left.accused.empty());
}

TEST_CASE("LateBeats: the largest of few, the second largest of a thousand, the last 1,024 alone") {
  LateBeats late;
  CHECK(late.P999() == milliseconds(0));
  late.Add(milliseconds(-7));
  CHECK(late.P999() == milliseconds(0));
  late.Add(milliseconds(500));
  CHECK(late.P999() == milliseconds(500));
  for (int i = 0; i < 997; ++i) late.Add(milliseconds(3));
  CHECK(late.P999() == milliseconds(500));
  late.Add(milliseconds(9));
  CHECK(late.P999() == milliseconds(9));
  for (int i = 0; i < 1024; ++i) late.Add(milliseconds(1));
  CHECK(late.P999() == milliseconds(1));
}

}  // namespace
}  // namespace ringmaster::ring
