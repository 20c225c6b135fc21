#include "cli/event_file.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "tensorboard/event.pb.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::cli {
namespace {

v1::MetricPoint EventPoint(uint64_t step, const std::map<std::string, double>& values) {
  v1::MetricPoint point;
  point.set_step(step);
  point.set_unix_ms(static_cast<int64_t>(step) * 1'500);
  for (const auto& [name, value] : values) {
    v1::MetricValue& added = *point.add_values();
    added.set_name(name);
    added.set_value(value);
  }
  return point;
}

std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void Overwrite(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

struct RunFolder {
  TemporaryFolder folder;
  std::string runs = folder.path() + "/runs/j1";
  std::string path = runs + "/events";
  StatusOr<std::unique_ptr<EventFile>> Open() const { return EventFile::Open(runs, "events"); }
};

TEST_CASE_METHOD(RunFolder, "EventFile: what it wrote it knows again, and goes on behind it") {
  {
    auto file = Open();
    REQUIRE(file.ok());
    CHECK((*file)->NewestStep("train/loss") == std::nullopt);
    REQUIRE((*file)->Add(EventPoint(2, {{"train/loss", 0.5}, {"zero", 0}})).ok());
    REQUIRE((*file)->Add(EventPoint(3, {{"train/loss", 0.25}})).ok());
    const std::string bytes = BytesOf(path);
    REQUIRE((*file)->Add(EventPoint(3, {{"train/loss", 7}})).ok());  // it is there
    CHECK(BytesOf(path) == bytes);
  }
  const std::string bytes = BytesOf(path);
  // The first record: its length, a masked sum, an Event, another sum.
  tensorboard::Event event;
  REQUIRE(event.ParseFromString(bytes.substr(12, static_cast<unsigned char>(bytes[0]))));
  CHECK(event.file_version() == "brain.Event:2");
  CHECK(event.wall_time() == 3);
  auto file = Open();
  REQUIRE(file.ok());
  CHECK((*file)->NewestStep("train/loss") == 3);
  CHECK((*file)->NewestStep("zero") == 2);
  CHECK((*file)->rewinds() == 0);
  REQUIRE((*file)->Restart(4, 1).ok());
  CHECK((*file)->NewestStep("train/loss") == std::nullopt);
  REQUIRE((*file)->Add(EventPoint(1, {{"train/loss", 1}})).ok());
  file->reset();
  CHECK(BytesOf(path).starts_with(bytes));
  file = Open();
  REQUIRE(file.ok());
  CHECK((*file)->rewinds() == 4);
  CHECK((*file)->NewestStep("train/loss") == 1);
  CHECK((*file)->NewestStep("zero") == std::nullopt);
}

TEST_CASE_METHOD(RunFolder, "EventFile: what an evaluation measured stands at step 0") {
  {
    const auto file = Open();
    REQUIRE(file.ok());
    REQUIRE((*file)->Add(EventPoint(0, {{"test/accuracy", 1}})).ok());
    const std::string bytes = BytesOf(path);
    REQUIRE((*file)->Add(EventPoint(0, {{"test/accuracy", 1}})).ok());  // it is there
    CHECK(BytesOf(path) == bytes);
  }
  CHECK_THAT(BytesOf(path), Catch::Contains("test/accuracy"));
  CHECK((*Open())->NewestStep("test/accuracy") == 0);
}

TEST_CASE_METHOD(RunFolder,
                 "EventFile: a record that is not whole is cut off, a damaged one refused") {
  REQUIRE((*Open())->Add(EventPoint(1, {{"train/loss", 1}})).ok());
  const std::string one = BytesOf(path);
  REQUIRE((*Open())->Add(EventPoint(2, {{"train/loss", 1}})).ok());
  const std::string two = BytesOf(path);
  for (size_t size = one.size(); size < two.size(); ++size) {
    Overwrite(path, two.substr(0, size));
    REQUIRE((*Open())->NewestStep("train/loss") == 1);
    REQUIRE(BytesOf(path) == one);
  }
  for (size_t at = 0; at < two.size(); ++at) {
    std::string damaged = two;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    Overwrite(path, damaged);
    const auto file = Open();
    INFO(at);
    REQUIRE_FALSE(file.ok());
    CHECK_THAT(Message(file.status()), Catch::Contains(path));
    CHECK(BytesOf(path) == damaged);
  }
}

TEST_CASE_METHOD(RunFolder, "EventFile: one writer at a time, and only where it can write") {
  const auto file = Open();
  REQUIRE(file.ok());
  const auto second = Open();
  REQUIRE_FALSE(second.ok());
  CHECK_THAT(Message(second.status()), Catch::Contains("another ringctl"));
  CHECK(EventFile::Open("/dev/null/runs", "events").status().code() ==
        absl::StatusCode::kInvalidArgument);
}

std::vector<uint64_t> StepsOf(const MetricPoints& points) {
  std::vector<uint64_t> steps;
  for (const v1::MetricPoint& point : points) steps.push_back(point.step());
  return steps;
}

TEST_CASE("EventOrder: a step waits for the end of the epoch before it") {
  using Steps = std::vector<uint64_t>;
  const auto points = [](const Steps& steps) {
    MetricPoints points;
    for (const uint64_t step : steps) points.push_back(EventPoint(step, {{"train/loss", 1}}));
    return points;
  };
  v1::JobStatus job;
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_steps_per_epoch(10);
  EventOrder order;
  // Epochs of 10 steps. The store wrote the second and the third end between the two readings.
  CHECK(StepsOf(order.Next(job, points({10}), points({5, 10, 15, 25, 32}))) ==
        Steps{5, 10, 10, 15});
  CHECK(StepsOf(order.Next(job, {}, points({33}))).empty());
  CHECK(StepsOf(order.Next(job, points({20, 30}), points({44}))) == Steps{20, 25, 30, 32, 33});
  // A job that ended in the middle of an epoch, whose last mean comes with its last step.
  v1::JobStatus over = job;
  over.set_state(v1::JOB_STATE_SUCCEEDED);
  CHECK(StepsOf(order.Next(over, points({40, 45}), points({45}))) == Steps{40, 44, 45, 45});
  // A file that goes on; a job that goes on from another one's step 37; one that still waits.
  EventOrder goes_on(30);
  CHECK(StepsOf(goes_on.Next(job, {}, points({35, 40}))) == Steps{35});
  v1::JobStatus resumed = job;
  resumed.set_resumes_job("j0001");
  resumed.mutable_resumed_from()->set_step(37);
  CHECK(StepsOf(EventOrder().Next(resumed, {}, points({38, 40}))) == Steps{38});
  v1::JobStatus continued = job;
  continued.mutable_continues()->set_step(40);
  CHECK(StepsOf(EventOrder().Next(continued, {}, points({41, 50}))) == Steps{41});
  CHECK(StepsOf(EventOrder().Next(v1::JobStatus(), {}, {})).empty());
}

}  // namespace
}  // namespace ringmaster::cli
