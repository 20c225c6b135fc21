#include "worker/train/reporter.h"

#include <catch2/catch.hpp>

#include "worker/train/pulse_board.h"
#include "worker/train/shard_work.h"
#include "worker/train/step_work.h"

namespace ringmaster::worker {
namespace {

using std::chrono::milliseconds;

TEST_CASE("StepMeter: means over the last 32 steps") {
  StepMeter::Time now{};
  StepMeter meter(now);
  REQUIRE(meter.samples_per_second() == 0);
  REQUIRE(meter.step_seconds() == 0);
  REQUIRE(meter.step_times().compute == 0);
  PhaseTimes times;
  const auto step = [&](int period, uint64_t samples, double input, double ring_wait) {
    now += milliseconds(period);
    times.input += input;
    times.ring_wait += ring_wait;
    meter.Add(samples, times, now);
  };
  step(500, 10, 0.25, 0.125);
  REQUIRE(meter.samples_per_second() == Approx(20));
  REQUIRE(meter.step_seconds() == Approx(0.5));
  REQUIRE(meter.step_times().input == Approx(0.25));
  step(1500, 30, 0.75, 0.125);
  REQUIRE(meter.samples_per_second() == Approx(20));
  REQUIRE(meter.step_seconds() == Approx(1));
  REQUIRE(meter.step_times().input == Approx(0.5));
  for (int i = 0; i < 32; ++i) step(250, 5, 0.0625, 0.25);
  REQUIRE(meter.samples_per_second() == Approx(20));
  REQUIRE(meter.step_seconds() == Approx(0.25));
  REQUIRE(meter.step_times().input == Approx(0.0625));
  REQUIRE(meter.step_times().ring_wait == Approx(0.25));
  REQUIRE(meter.run_times().input == Approx(0.25 + 0.75 + 32 * 0.0625));
  step(250 + 32 * 250, 5, 0, 0);  // the oldest of 32 has left
  REQUIRE(meter.step_seconds() == Approx(0.5));
}

TEST_CASE("PulseBoard: compute shows as input while a core waits for samples") {
  PulseBoard board;
  double seconds = 0;
  REQUIRE(std::string(board.Read().phase) == "idle");
  {
    const PhaseScope compute(&board, "compute", &seconds);
    REQUIRE(std::string(board.Read().phase) == "compute");
    {
      const InputScope first(&board, &seconds);
      const InputScope second(&board, &seconds);
      REQUIRE(std::string(board.Read().phase) == "input");
    }
    REQUIRE(std::string(board.Read().phase) == "compute");
  }
  const PhaseScope evaluate(&board, "evaluate", &seconds);
  const InputScope input(&board, &seconds);
  REQUIRE(std::string(board.Read().phase) == "evaluate");
  REQUIRE(board.Read().progress == 1);
}

TEST_CASE("PulseBoard: whatever a step is at shows as restart while a core's device is down") {
  PulseBoard board;
  double seconds = 0;
  for (const char* phase : {"compute", "evaluate"}) {
    const PhaseScope scope(&board, phase, &seconds);
    const InputScope input(&board, &seconds);
    const uint64_t progress = board.Read().progress;
    {
      const OutageScope first(&board, &seconds);
      const OutageScope second(&board, &seconds);
      REQUIRE(std::string(board.Read().phase) == kRestartPhase);
    }
    REQUIRE(std::string(board.Read().phase) != kRestartPhase);
    REQUIRE(board.Read().progress == progress + 2);
  }
}

TEST_CASE("LongestWait: for samples and devices, of the core that waited longest for both") {
  std::vector<ShardResult> results(4);
  for (size_t i = 0; i < 4; ++i) {
    results[i].core = i % 2;
    results[i].input_seconds = 0.25;
  }
  results[1].outage_seconds = 2;
  results[2].outage_seconds = 1;
  REQUIRE(LongestWait(results, 2) == 2.5);
  REQUIRE(LongestWait({}, 1) == 0);
}

TEST_CASE("LongestInput: of the core that waited longest over all its shards") {
  std::vector<ShardResult> results(4);
  const double waits[] = {0.5, 0.25, 0.5, 0.25};
  for (size_t i = 0; i < 4; ++i) {
    results[i].core = i % 2;
    results[i].input_seconds = waits[i];
  }
  REQUIRE(LongestInput(results, 2) == 1.0);
  REQUIRE(LongestInput(results, 3) == 1.0);
  REQUIRE(LongestInput({}, 2) == 0);
}

}  // namespace
}  // namespace ringmaster::worker
