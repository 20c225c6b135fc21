#include "worker/job/run_observer.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <catch2/catch.hpp>
#include <sstream>
#include <vector>

namespace ringmaster::worker {
namespace {

std::vector<std::string> PhasesOf(const std::vector<Event>& events) {
  std::vector<std::string> phases;
  for (const Event& event : events) {
    if (const auto* changed = std::get_if<PhaseChanged>(&event)) phases.push_back(changed->phase);
  }
  return phases;
}

TEST_CASE("StartPhases: each phase is told as it begins, with the time of the one before") {
  std::vector<Event> events;
  StartPhases phases([&](Event event) { events.push_back(std::move(event)); });
  REQUIRE(std::string(phases.shown()).empty());
  phases.Enter(JobId("j1"), "data_check");
  REQUIRE(std::string(phases.shown()) == "data_check");
  REQUIRE(std::get<PhaseChanged>(events[0]).job == JobId("j1"));
  REQUIRE(std::get<PhaseChanged>(events[0]).seconds == 0);
  phases.Pause();
  REQUIRE(std::string(phases.shown()) == "data_check");
  phases.Enter(JobId("j1"), "graph");
  phases.Enter(JobId("j1"), "plan");
  REQUIRE(PhasesOf(events) == std::vector<std::string>{"data_check", "graph", "plan"});
  for (const Event& event : events) REQUIRE(std::get<PhaseChanged>(event).seconds >= 0);
  phases.Clear();
  REQUIRE(std::string(phases.shown()).empty());
  phases.Enter(JobId("j2"), "data_check");
  REQUIRE(std::get<PhaseChanged>(events.back()).seconds == 0);
}

TEST_CASE("RunObserver: the log says once that a step was applied, however often it is told") {
  std::ostringstream log;
  const auto usual = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  spdlog::set_level(spdlog::level::debug);
  v1::Start start;
  start.set_job_id("j1");
  start.set_start_step(5);
  const std::function<void(Event)> post = [](const Event&) {};
  StartPhases phases(post);
  RunObserver observer(&start, &phases, &post);
  Progress progress;
  for (const uint64_t applied : {5, 6, 7, 7}) {  // step 5 was another run's; 7 is evaluated
    progress.applied = applied;
    observer.OnProgress(progress);
  }
  spdlog::set_default_logger(usual);
  REQUIRE(log.str().find("applied=5") == std::string::npos);
  REQUIRE(log.str().find("applied=6") != std::string::npos);
  REQUIRE(log.str().find("applied=7") != std::string::npos);
  REQUIRE(log.str().find("applied=7") == log.str().rfind("applied=7"));
}

TEST_CASE("RunObserver: the first step ends the last phase; an evaluation before it does not") {
  v1::Start start;
  start.set_job_id("j1");
  start.set_start_step(5);
  start.mutable_generation()->set_counter(2);
  std::vector<Event> events;
  const std::function<void(Event)> post = [&](Event event) { events.push_back(std::move(event)); };
  StartPhases phases(post);
  RunObserver observer(&start, &phases, &post);
  Progress progress;
  progress.applied = 5;
  observer.OnProgress(progress);
  REQUIRE(PhasesOf(events).empty());
  progress.applied = 6;
  observer.OnProgress(progress);
  progress.applied = 7;
  progress.digest.fill('d');
  observer.OnProgress(progress);
  REQUIRE(PhasesOf(events) == std::vector<std::string>{"done"});
  const v1::Progress& message = std::get<RunProgress>(events.back()).progress;
  REQUIRE(message.job_id() == "j1");
  REQUIRE(message.applied() == 7);
  REQUIRE(message.generation().counter() == 2);
  REQUIRE(std::get<RunProgress>(events.back()).digest == std::string(32, 'd'));
  REQUIRE_FALSE(std::get<RunProgress>(events.back()).evaluated);
  progress.test = Evaluation{.step = 7};
  observer.OnProgress(progress);
  REQUIRE(std::get<RunProgress>(events.back()).evaluated);
  CHECK(std::get<RunProgress>(events.back()).progress.lasting().empty());  // it has no metrics
  progress.applied = 8;
  observer.OnProgress(progress);
  REQUIRE_FALSE(std::get<RunProgress>(events.back()).evaluated);
}

TEST_CASE("RunObserver: epochs and evaluations last, and what a fetched state brought with it") {
  v1::Start start;
  start.set_job_id("j1");
  std::vector<Event> events;
  const std::function<void(Event)> post = [&](Event event) { events.push_back(std::move(event)); };
  StartPhases phases(post);
  RunObserver observer(&start, &phases, &post);
  Progress progress;
  // `1@6` for train at step 6.
  const auto lasting = [&] {
    observer.OnProgress(progress);
    std::vector<std::string> said;
    for (const v1::Metric& metric : std::get<RunProgress>(events.back()).progress.lasting()) {
      said.push_back(fmt::format("{}@{}", metric.split(), metric.step()));
    }
    return said;
  };
  using Said = std::vector<std::string>;
  progress.applied = 5;
  progress.train = {{"loss", 1}};
  progress.validation = Evaluation{.step = 4, .metrics = {{"loss", 2}}};
  CHECK(lasting() == Said{"2@4"});
  CHECK(lasting().empty());
  progress.applied = 8;
  progress.epoch_ended = true;
  CHECK(lasting() == Said{"1@8"});
  progress.validation->step = 8;
  CHECK(lasting() == Said{"1@8", "2@8"});
  progress.test = Evaluation{.step = 8, .metrics = {{"loss", 3}}};
  CHECK(lasting() == Said{"1@8", "2@8", "3@8"});
  progress.applied = 9;
  progress.epoch_ended = false;
  CHECK(lasting().empty());
}

TEST_CASE("RunObserver: every number of a progress is in the message") {
  Progress progress;
  progress.updates = 9;
  progress.loss_scale = 512;
  progress.learning_rate = 0.25;
  progress.epoch = 3;
  progress.train = {{"loss", 1.5}, {"accuracy", 0.5}};
  progress.validation = Evaluation{.step = 4, .metrics = {{"loss", 0.75}, {"accuracy", 0.625}}};
  progress.test = Evaluation{.step = 2, .metrics = {{"accuracy", 0.875}}};
  progress.samples_per_second = 100;
  progress.ring_bytes = 77;
  progress.shards_computed = 40;
  progress.shards_dropped = 3;
  progress.step_times = {.input = 1,
                         .compute = 2,
                         .ring_wait = 3,
                         .ring_transfer = 4,
                         .update = 5,
                         .evaluate = 6,
                         .checkpoint = 7,
                         .input_work = 9};
  progress.input_threads = 10;
  progress.step_seconds = 8;
  const v1::Progress message = MessageOf(progress);
  CHECK(message.updates() == 9);
  CHECK(message.loss_scale() == 512);
  CHECK(message.learning_rate() == 0.25);
  CHECK(message.epoch() == 3);
  std::vector<std::string> metrics;
  for (const v1::Metric& metric : message.metrics()) {
    metrics.push_back(
        fmt::format("{} {} {} {}", metric.split(), metric.name(), metric.value(), metric.step()));
  }
  CHECK(metrics == std::vector<std::string>{fmt::format("1 loss 1.5 {}", progress.applied),
                                            fmt::format("1 accuracy 0.5 {}", progress.applied),
                                            "2 loss 0.75 4", "2 accuracy 0.625 4",
                                            "3 accuracy 0.875 2"});
  CHECK(message.samples_per_second() == 100);
  CHECK(message.ring_bytes() == 77);
  CHECK(message.shards_computed() == 40);
  CHECK(message.shards_dropped() == 3);
  CHECK(message.step_times().input() == 1);
  CHECK(message.step_times().compute() == 2);
  CHECK(message.step_times().ring_wait() == 3);
  CHECK(message.step_times().ring_transfer() == 4);
  CHECK(message.step_times().update() == 5);
  CHECK(message.step_times().total() == 8);
  CHECK(message.step_times().input_work() == 9);
  CHECK(message.step_times().input_threads() == 10);
  const v1::Progress plain = MessageOf({});
  CHECK_FALSE(plain.has_loss_scale());
  CHECK(plain.metrics().empty());
}

}  // namespace
}  // namespace ringmaster::worker
