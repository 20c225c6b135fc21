#include "bench/training/step_clock.h"

#include <catch2/catch.hpp>

namespace ringmaster::bench {
namespace {

using std::chrono::milliseconds;

// A run whose steps compute for 3/4 of their time.
struct Run {
  explicit Run(const StepClockOptions& options) : clock(options, &stop, now) {}
  void Pass(int period) {
    now.time += milliseconds(period);
    now.cpu_seconds += 0.002 * period;  // on two CPUs
  }
  void Step(int period) {
    Pass(period);
    ++progress.applied;
    progress.run_times.compute += 0.00075 * period;
    progress.run_times.update += 0.0001 * period;
    clock.Note(progress, now);
  }
  void Evaluation(int period) {
    Pass(period);
    progress.run_times.evaluate += 0.001 * period;
    clock.Note(progress, now);
  }

  StepClock::Moment now;
  worker::Progress progress;
  std::stop_source stop;
  StepClock clock;
};

TEST_CASE("StepClock: the warm-up is left out, but for the first step's time") {
  Run run({.warm_up = 2});
  run.Step(900);
  run.Step(500);
  REQUIRE(run.clock.step_seconds().empty());
  run.Step(100);
  run.Step(300);
  REQUIRE(run.clock.first_step_seconds() == Approx(0.9));
  REQUIRE(run.clock.step_seconds().size() == 2);
  REQUIRE(run.clock.step_seconds()[0] == Approx(0.1));
  REQUIRE(run.clock.step_seconds()[1] == Approx(0.3));
  REQUIRE(run.clock.phases().compute == Approx(0.15));
  REQUIRE(run.clock.phases().update == Approx(0.02));
  REQUIRE(run.clock.step_cpu_seconds() == Approx(0.4));
  REQUIRE_FALSE(run.stop.stop_requested());
}

TEST_CASE("StepClock: an evaluation between two steps belongs to neither") {
  Run run({.warm_up = 1});
  run.Step(100);
  run.Evaluation(700);
  run.Step(100);
  run.Evaluation(700);
  run.Step(200);
  REQUIRE(run.clock.step_seconds().size() == 2);
  REQUIRE(run.clock.step_seconds()[0] == Approx(0.1));
  REQUIRE(run.clock.step_seconds()[1] == Approx(0.2));
  REQUIRE(run.clock.step_cpu_seconds() == Approx(0.3));
  REQUIRE(run.clock.phases().evaluate == 0);
  REQUIRE(run.clock.phases().compute == Approx(0.1125));
}

TEST_CASE("StepClock: enough seconds end the run, but not before the third step") {
  Run run({.warm_up = 1, .seconds = 1});
  run.Step(5000);
  run.Step(900);
  run.Step(900);
  REQUIRE_FALSE(run.stop.stop_requested());
  run.Step(10);
  REQUIRE(run.stop.stop_requested());

  Run quick({.warm_up = 1, .seconds = 1});
  for (int i = 0; i < 10; ++i) quick.Step(100);
  REQUIRE_FALSE(quick.stop.stop_requested());
  quick.Step(101);
  REQUIRE(quick.stop.stop_requested());
}

}  // namespace
}  // namespace ringmaster::bench
