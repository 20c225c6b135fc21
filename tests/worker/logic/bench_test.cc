// A worker without a job measures rings, and its job comes first.
#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "tests/worker/logic/logic_words.h"

namespace ringmaster::worker {
namespace {

FromCoordinator Measure(uint64_t counter) {
  FromCoordinator event;
  v1::Generation& generation = *event.message.mutable_measure_ring()->mutable_generation();
  generation.set_term(3);
  generation.set_counter(counter);
  return event;
}

FromCoordinator EndMeasure(uint64_t counter) {
  FromCoordinator event;
  v1::Generation& generation = *event.message.mutable_end_measuring()->mutable_generation();
  generation.set_term(3);
  generation.set_counter(counter);
  return event;
}

BenchEnded Ended(uint64_t counter) {
  BenchEnded ended;
  ended.measured.mutable_generation()->set_term(3);
  ended.measured.mutable_generation()->set_counter(counter);
  return ended;
}

WorkerLogic FreeLogic() {
  WorkerLogic logic(Self(), 3);
  (void)logic.Step(Connected{}, kNow);
  (void)logic.Step(Attached(3), kNow);
  return logic;
}

std::string ErrorIn(const Decision& decision) { return Sent(decision).ring_measured().error(); }

TEST_CASE("WorkerLogic: a free worker measures a ring and says what came of it") {
  WorkerLogic logic = FreeLogic();
  const Decision told = logic.Step(Measure(1), kNow);
  REQUIRE(Find<MeasureRing>(told) != nullptr);
  CHECK(Find<MeasureRing>(told)->measure.generation().counter() == 1);
  CHECK(logic.job().empty());
  CHECK(ErrorIn(logic.Step(Measure(2), kNow)) == "the worker still measures generation 3.1");
  CHECK(logic.Step(EndMeasure(2), kNow).actions.empty());
  CHECK(Find<EndMeasuring>(logic.Step(EndMeasure(1), kNow)) != nullptr);
  const Decision ended = logic.Step(Ended(1), kNow);
  CHECK(Sent(ended).ring_measured().generation().counter() == 1);
  CHECK(logic.Step(EndMeasure(1), kNow).actions.empty());
  CHECK(Find<MeasureRing>(logic.Step(Measure(3), kNow)) != nullptr);
}

TEST_CASE("WorkerLogic: a worker with a job, or one that stops, measures nothing") {
  WorkerLogic running = RunningLogic();
  CHECK(ErrorIn(running.Step(Measure(9), kNow)) == "the worker still holds job j1");
  WorkerLogic stopping = FreeLogic();
  (void)stopping.Step(StopRequested{"SIGTERM"}, kNow);
  CHECK(ErrorIn(stopping.Step(Measure(1), kNow)) == "the worker is stopping");
}

TEST_CASE("WorkerLogic: a measurement ends with its session, and for a job") {
  WorkerLogic logic = FreeLogic();
  (void)logic.Step(Measure(1), kNow);
  CHECK(Find<EndMeasuring>(logic.Step(Disconnected{"broken"}, kNow)) != nullptr);
  (void)logic.Step(Connected{}, kNow);
  (void)logic.Step(Attached(3), kNow);
  // The job thread is not back yet.
  const Decision given = logic.Step(Inspect("j1"), kNow);
  CHECK(Find<InspectDataset>(given) == nullptr);
  CHECK(Find<EndMeasuring>(given) != nullptr);
  const Decision ended = logic.Step(Ended(1), kNow);
  REQUIRE(Find<InspectDataset>(ended) != nullptr);
  CHECK(Find<InspectDataset>(ended)->job == JobId("j1"));
  CHECK(logic.job() == JobId("j1"));
}

TEST_CASE("WorkerLogic: a job that is taken back before the measurement ended is never inspected") {
  WorkerLogic logic = FreeLogic();
  (void)logic.Step(Measure(1), kNow);
  (void)logic.Step(Inspect("j1"), kNow);
  FromCoordinator release;
  release.message.mutable_release()->set_job_id("j1");
  (void)logic.Step(release, kNow);
  CHECK(Find<InspectDataset>(logic.Step(Ended(1), kNow)) == nullptr);
  CHECK(logic.job().empty());
}

}  // namespace
}  // namespace ringmaster::worker
