#include "coordinator/logic/history.h"

#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "tests/coordinator/logic/fixtures.h"

namespace ringmaster::coordinator {
namespace {

std::set<uint64_t> StepsOf(const MetricPoints& points) {
  std::set<uint64_t> steps;
  for (const auto& [step, point] : points) {
    CHECK(point.step() == step);
    steps.insert(step);
  }
  return steps;
}

MetricBatch BatchOf(const std::set<uint64_t>& steps) {
  MetricBatch batch;
  for (const uint64_t step : steps) {
    batch.steps[step].set_step(step);
    batch.stride = StepThinning::StrideOf(step);
  }
  return batch;
}

v1::Metric MetricOf(v1::SampleSplit split, uint64_t step, double value) {
  v1::Metric metric;
  metric.set_split(split);
  metric.set_name("loss");
  metric.set_step(step);
  metric.set_value(value);
  return metric;
}

v1::Progress Said(uint64_t applied) {
  v1::Progress said;
  said.set_applied(applied);
  *said.add_metrics() = MetricOf(v1::SAMPLE_SPLIT_TRAIN, applied, 1.0 / double(applied));
  *said.add_metrics() = MetricOf(v1::SAMPLE_SPLIT_TEST, 1, 7);
  said.set_learning_rate(0.25);
  said.set_samples_per_second(100);
  said.mutable_step_times()->set_compute(0.5);
  return said;
}

double ValueOf(const v1::MetricPoint& point, const std::string& name) {
  for (const v1::MetricValue& value : point.values()) {
    if (value.name() == name) return value.value();
  }
  FAIL("no value " << name);
  return 0;
}

TEST_CASE("StepThinning: of stretches that the newest step makes longer the first step stays") {
  CHECK(StepThinning::StrideOf(2'047) == 1);
  CHECK(StepThinning::StrideOf(2'048) == 2);
  CHECK(StepThinning::StrideOf(4'095) == 2);
  CHECK(StepThinning::StrideOf(4'096) == 4);
  StepThinning thinning;
  CHECK(thinning.Keeps(2'047));
  CHECK(thinning.Keeps(2'048));
  CHECK_FALSE(thinning.Keeps(2'048));
  CHECK_FALSE(thinning.Keeps(2'049));
  CHECK(thinning.Keeps(2'051));
  CHECK_FALSE(thinning.Keeps(2'047));
  thinning.Forget();
  CHECK(thinning.Keeps(2'047));
}

TEST_CASE("StepThinning: what stays is a function of the steps that were seen") {
  std::mt19937 random(7);
  for (int trial = 0; trial < 20; ++trial) {
    std::set<uint64_t> seen, kept;
    StepThinning thinning;
    MetricBatch stored;
    MetricBatch waiting;
    uint64_t step = 0;
    for (int i = 0; i < 6'000; ++i) {
      step += 1 + random() % (1U << (trial % 8));
      seen.insert(step);
      if (random() % 500 == 0) thinning.Forget();  // a coordinator that starts anew
      if (thinning.Keeps(step)) waiting.Append(BatchOf({step}));
      if (random() % 50 != 0) continue;
      stored.Append(std::exchange(waiting, {}));
      CHECK(stored.steps.size() <= StepThinning::kMost);
    }
    stored.Append(waiting);
    const uint64_t stride = StepThinning::StrideOf(*StepsOf(stored.steps).rbegin());
    std::set<uint64_t> expected, stretches;
    for (const uint64_t each : seen) {
      if (stretches.insert(each / stride).second) expected.insert(each);
    }
    CHECK(stride == StepThinning::StrideOf(step));
    CHECK(StepsOf(stored.steps) == expected);
  }
}

TEST_CASE("MetricHistory: a step with all its values, an epoch once whoever says it") {
  MetricHistory history;
  v1::Progress said = Said(6);
  said.set_loss_scale(512);
  *said.add_lasting() = MetricOf(v1::SAMPLE_SPLIT_TRAIN, 6, 0.5);
  history.Add(said, 4, {std::chrono::milliseconds(1), 1'000});
  history.Add(said, 4, {std::chrono::milliseconds(1), 2'000});
  v1::Progress evaluated = Said(7);
  *evaluated.add_lasting() = MetricOf(v1::SAMPLE_SPLIT_VALIDATION, 6, 0.75);
  *evaluated.add_lasting() = MetricOf(v1::SAMPLE_SPLIT_TEST, 6, 0.875);
  history.Add(evaluated, 4, {std::chrono::milliseconds(2), 3'000});
  const MetricBatch batch = history.Take(AtMs(3));
  CHECK(StepsOf(batch.steps) == std::set<uint64_t>{6, 7});
  CHECK(StepsOf(batch.epochs) == std::set<uint64_t>{6});
  const v1::MetricPoint& step = batch.steps.at(6);
  CHECK(step.epoch() == 1);
  CHECK(step.unix_ms() == 1'000);
  CHECK(step.values_size() == 10);
  CHECK(ValueOf(step, "train/loss") == 1.0 / 6);
  CHECK(ValueOf(step, "learning_rate") == 0.25);
  CHECK(ValueOf(step, "loss_scale") == 512);
  CHECK(ValueOf(step, "samples_per_second") == 100);
  CHECK(ValueOf(step, "step/compute") == 0.5);
  CHECK(batch.steps.at(7).values_size() == 9);
  const v1::MetricPoint& epoch = batch.epochs.at(6);
  CHECK(epoch.values_size() == 3);
  CHECK(epoch.unix_ms() == 1'000);
  CHECK(ValueOf(epoch, "train/loss") == 0.5);
  CHECK(ValueOf(epoch, "validation/loss") == 0.75);
  CHECK(ValueOf(epoch, "test/loss") == 0.875);
  // Said once more by who was slow.
  history.Add(said, 4, {std::chrono::milliseconds(4), 4'000});
  CHECK(history.Take(AtMs(5)).empty());
}

TEST_CASE("MetricHistory: an epoch is written within a second, steps within five") {
  MetricHistory history;
  history.Add(Said(1), 4, AtMs(10'000));
  CHECK_FALSE(history.TakeDue(AtMs(10'000)).empty());  // nothing was written before
  history.Add(Said(2), 4, AtMs(10'100));
  CHECK(history.TakeDue(AtMs(14'999)).empty());
  v1::Progress said = Said(3);
  *said.add_lasting() = MetricOf(v1::SAMPLE_SPLIT_TRAIN, 4, 0.5);
  CHECK_FALSE(history.TakeDue(AtMs(15'000)).empty());
  history.Add(said, 4, AtMs(15'100));
  CHECK(history.TakeDue(AtMs(15'999)).empty());
  CHECK(StepsOf(history.TakeDue(AtMs(16'000)).epochs) == std::set<uint64_t>{4});
  CHECK(history.TakeDue(AtMs(100'000)).empty());
}

TEST_CASE("MetricHistory: a job that goes back forgets what came later, and hears it again") {
  MetricHistory history;
  v1::Progress said = Said(9);
  *said.add_lasting() = MetricOf(v1::SAMPLE_SPLIT_TRAIN, 4, 0.5);
  *said.add_lasting() = MetricOf(v1::SAMPLE_SPLIT_TRAIN, 8, 0.25);
  history.Add(said, 4, AtMs(1));
  history.GoBack(5);
  MetricBatch batch = history.Take(AtMs(2));
  CHECK(batch.forget_after == 5);
  CHECK(StepsOf(batch.epochs) == std::set<uint64_t>{4});
  CHECK(batch.steps.empty());
  said.set_applied(8);
  history.Add(said, 4, AtMs(3));
  batch = history.Take(AtMs(4));
  CHECK_FALSE(batch.forget_after);
  CHECK(StepsOf(batch.epochs) == std::set<uint64_t>{8});
  CHECK(StepsOf(batch.steps) == std::set<uint64_t>{8});
}

TEST_CASE("MetricBatch: what could not be written goes with the next") {
  MetricBatch waiting = BatchOf({1, 2, 3});
  waiting.epochs[2].set_step(2);
  MetricBatch later = BatchOf({3, 4});
  later.forget_after = 2;
  waiting.Append(later);
  CHECK(waiting.forget_after == 2);
  CHECK(StepsOf(waiting.steps) == std::set<uint64_t>{1, 2, 3, 4});
  later.forget_after = 1;
  later.steps.clear();
  waiting.Append(later);
  CHECK(waiting.forget_after == 1);
  CHECK(StepsOf(waiting.steps) == std::set<uint64_t>{1});
  CHECK(waiting.epochs.empty());
}

}  // namespace
}  // namespace ringmaster::coordinator
