#include "coordinator/store/sqlite_store.h"

#include <sqlite3.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <map>

#include "coordinator/logic/record.h"
#include "coordinator/store/data_folder.h"
#include "tests/support/cluster_messages.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::coordinator {
namespace {

JobRecord MakeJob(uint64_t number, const std::string& key) {
  JobRecord job;
  job.number = number;
  job.idempotency_key = key;
  job.spec_sha256 = "sha of " + key;
  job.status.set_job_id("j" + std::to_string(number));
  job.status.set_state(v1::JOB_STATE_QUEUED);
  *job.status.mutable_spec() = testing::MakeSpec();
  return job;
}

CheckpointRecord MakeCheckpoint(const std::string& job, uint64_t step) {
  CheckpointRecord checkpoint;
  checkpoint.job_id = job;
  checkpoint.ref.set_step(step);
  checkpoint.ref.set_path("folder/" + std::to_string(step));
  checkpoint.ref.set_sha256("sha" + std::to_string(step));
  return checkpoint;
}

TEST_CASE("SqliteStore: everything that returned OK is there after a reopening") {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/db";
  {
    auto store = SqliteStore::Open(path);
    REQUIRE(store.ok());
    REQUIRE((*store)->InsertJob(MakeJob(1, "k1")).ok());
    JobRecord job = MakeJob(2, "k2");
    REQUIRE((*store)->InsertJob(job).ok());
    job.status.set_state(v1::JOB_STATE_RUNNING);
    job.status.set_reason("why");
    job.cancel_requested = true;
    job.resolved.emplace();
    job.resolved->set_name("resolved");
    job.events.Add({event_type::kSubmitted, Severity::kInfo, "submitted"}, 17, 10);
    job.events.Add({event_type::kWorkerLost, Severity::kError, "it died", "w2"}, 18, 10);
    REQUIRE((*store)->SaveJob(job).ok());
    REQUIRE((*store)->InsertCheckpoint(MakeCheckpoint("j2", 4)).ok());
    REQUIRE((*store)->InsertCheckpoint(MakeCheckpoint("j2", 2)).ok());
    REQUIRE((*store)->RemoveCheckpoint(MakeCheckpoint("j2", 4)).ok());
    REQUIRE((*store)->SaveDrain({"a", "first"}).ok());
    REQUIRE((*store)->SaveDrain({"b", "other"}).ok());
    REQUIRE((*store)->SaveDrain({"a", "second"}).ok());
    REQUIRE((*store)->SaveDrain({"b", ""}).ok());
  }
  auto store = SqliteStore::Open(path);
  REQUIRE(store.ok());
  const auto drains = (*store)->LoadDrains();
  REQUIRE(drains.ok());
  REQUIRE(drains->size() == 1);
  CHECK(drains->at(0).worker == "a");
  CHECK(drains->at(0).incarnation == "second");
  const auto jobs = (*store)->LoadJobs();
  REQUIRE(jobs.ok());
  REQUIRE(jobs->size() == 2);
  CHECK(jobs->at(0).idempotency_key == "k1");
  CHECK_FALSE(jobs->at(0).resolved.has_value());
  const JobRecord& job = jobs->at(1);
  CHECK(job.number == 2);
  CHECK(job.spec_sha256 == "sha of k2");
  CHECK(job.status.state() == v1::JOB_STATE_RUNNING);
  CHECK(job.status.spec().name() == "test");
  CHECK(job.cancel_requested);
  CHECK(job.resolved->name() == "resolved");
  REQUIRE(job.events.all().size() == 2);
  CHECK(job.events.all()[0].number() == 1);
  const v1::Event& event = job.events.all()[1];
  CHECK(event.number() == 2);
  CHECK(event.unix_ms() == 18);
  CHECK(event.type() == "WorkerLost");
  CHECK(event.severity() == "error");
  CHECK(event.subject() == "w2");
  CHECK(event.message() == "it died");
  const auto checkpoints = (*store)->LoadCheckpoints();
  REQUIRE(checkpoints.ok());
  REQUIRE(checkpoints->size() == 1);
  CHECK(checkpoints->at(0).ref.step() == 2);
  CHECK(checkpoints->at(0).ref.path() == "folder/2");
}

TEST_CASE("SqliteStore: a checkpoint keeps its metric, and may become the best later") {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/db";
  {
    auto store = SqliteStore::Open(path);
    REQUIRE((*store)->InsertJob(MakeJob(1, "k")).ok());
    REQUIRE((*store)->InsertCheckpoint(MakeCheckpoint("j1", 2)).ok());
    REQUIRE((*store)->InsertCheckpoint(MakeCheckpoint("j1", 4)).ok());
    CheckpointRecord best = MakeCheckpoint("j1", 4);
    best.ref.set_metric(0.625);
    best.best = true;
    REQUIRE((*store)->InsertCheckpoint(best).ok());
  }
  auto store = SqliteStore::Open(path);
  const auto checkpoints = (*store)->LoadCheckpoints();
  REQUIRE(checkpoints.ok());
  REQUIRE(checkpoints->size() == 2);
  CHECK_FALSE(checkpoints->at(0).best);
  CHECK_FALSE(checkpoints->at(0).ref.has_metric());
  CHECK(checkpoints->at(1).best);
  CHECK(checkpoints->at(1).ref.metric() == 0.625);
  CHECK(checkpoints->at(1).ref.path() == "folder/4");
}

v1::MetricPoint PointAt(uint64_t step, const std::string& name, double value, int64_t unix_ms) {
  v1::MetricPoint point;
  point.set_step(step);
  point.set_epoch(step / 4);
  point.set_unix_ms(unix_ms);
  v1::MetricValue& added = *point.add_values();
  added.set_name(name);
  added.set_value(value);
  return point;
}

MetricBatch StepBatch(uint64_t first, uint64_t last) {
  MetricBatch batch;
  StepThinning thinning;
  for (uint64_t step = first; step <= last; ++step) {
    if (thinning.Keeps(step)) batch.steps[step] = PointAt(step, "train/loss", double(step), 0);
  }
  batch.stride = StepThinning::StrideOf(last);
  return batch;
}

// `4 train/loss=0.5 test/loss=1 @7` for each.
std::vector<std::string> PointsOf(Store& store, const std::string& job, v1::MetricSeries series,
                                  std::optional<uint64_t> after = {}, size_t max_bytes = 1 << 20) {
  const auto page = store.LoadMetrics(job, series, after, max_bytes);
  REQUIRE(page.ok());
  std::vector<std::string> points;
  for (const v1::MetricPoint& point : page->points) {
    std::string& text = points.emplace_back(std::to_string(point.step()));
    for (const v1::MetricValue& value : point.values()) {
      text += fmt::format(" {}={}", value.name(), value.value());
    }
    text += fmt::format(" @{}", point.unix_ms());
  }
  if (page->more) points.emplace_back("more");
  return points;
}

TEST_CASE("SqliteStore: metrics of a step come together, and go back with the job") {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/db";
  {
    auto store = SqliteStore::Open(path);
    REQUIRE((*store)->InsertJob(MakeJob(1, "k1")).ok());
    REQUIRE((*store)->InsertJob(MakeJob(2, "k2")).ok());
    MetricBatch batch = StepBatch(1, 9);
    batch.epochs[4] = PointAt(4, "train/loss", 0.5, 7);
    batch.epochs[8] = PointAt(8, "train/loss", 0.25, 8);
    REQUIRE((*store)->SaveMetrics("j1", batch).ok());
    REQUIRE((*store)->SaveMetrics("j2", batch).ok());
    batch = {};
    batch.epochs[4] = PointAt(4, "test/loss", 1.0 / 3, 9);
    REQUIRE((*store)->SaveMetrics("j1", batch).ok());
    // Back to S(4), and on: a value that is said again holds.
    batch = StepBatch(5, 6);
    batch.forget_after = 4;
    batch.epochs[4] = PointAt(4, "train/loss", 0.625, 10);
    REQUIRE((*store)->SaveMetrics("j1", batch).ok());
  }
  auto store = SqliteStore::Open(path);
  REQUIRE(store.ok());
  using Points = std::vector<std::string>;
  CHECK(PointsOf(**store, "j1", v1::METRIC_SERIES_EPOCHS) ==
        Points{"4 train/loss=0.625 test/loss=0.3333333333333333 @7"});
  CHECK(PointsOf(**store, "j1", v1::METRIC_SERIES_STEPS, 3) ==
        Points{"4 train/loss=4 @0", "5 train/loss=5 @0", "6 train/loss=6 @0"});
  CHECK(PointsOf(**store, "j2", v1::METRIC_SERIES_STEPS).size() == 9);
  // Pages: at least one point each.
  CHECK(PointsOf(**store, "j2", v1::METRIC_SERIES_EPOCHS, {}, 1) ==
        Points{"4 train/loss=0.5 @7", "more"});
  CHECK(PointsOf(**store, "j2", v1::METRIC_SERIES_EPOCHS, 4, 1) == Points{"8 train/loss=0.25 @8"});
  CHECK(PointsOf(**store, "j2", v1::METRIC_SERIES_EPOCHS, 8).empty());
  CHECK(PointsOf(**store, "j3", v1::METRIC_SERIES_EPOCHS).empty());
}

TEST_CASE("SqliteStore: the steps that stay are those of the logic, and bounded") {
  TemporaryFolder folder;
  auto store = SqliteStore::Open(folder.path() + "/db");
  REQUIRE((*store)->InsertJob(MakeJob(1, "k1")).ok());
  MetricBatch all;
  uint64_t last = 0;
  for (const uint64_t next : {1'000, 2'047, 2'060, 3'000, 5'000, 9'001}) {
    const MetricBatch batch = StepBatch(last + 1, next);
    REQUIRE((*store)->SaveMetrics("j1", batch).ok());
    all.Append(batch);
    last = next;
  }
  std::vector<std::string> expected;
  for (const auto& [step, point] : all.steps) {
    expected.push_back(fmt::format("{0} train/loss={0} @0", step));
  }
  CHECK(expected.size() > StepThinning::kMost / 2);
  CHECK(expected.size() <= StepThinning::kMost);
  CHECK(PointsOf(**store, "j1", v1::METRIC_SERIES_STEPS) == expected);
}

TEST_CASE("SqliteStore: metrics are stored whole or not at all, of jobs alone, and go with them") {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/db";
  {
    auto store = SqliteStore::Open(path);
    REQUIRE((*store)->InsertJob(MakeJob(1, "k1")).ok());
    MetricBatch batch = StepBatch(1, 2);
    CHECK((*store)->SaveMetrics("j9", batch).code() == absl::StatusCode::kUnavailable);
    CHECK(PointsOf(**store, "j9", v1::METRIC_SERIES_STEPS).empty());
    // The failure left no transaction open.
    CHECK((*store)->SaveMetrics("j1", batch).ok());
  }
  auto database = SqliteDatabase::Open(path);
  REQUIRE(database.ok());
  int64_t rows = -1;
  const auto count = [&] {
    return (*database)->Run("SELECT count(*) FROM metrics", {}, [&](const SqlRow& row) {
      rows = row.Integer(0);
      return absl::OkStatus();
    });
  };
  REQUIRE(count().ok());
  CHECK(rows == 2);
  REQUIRE((*database)->Run("DELETE FROM jobs WHERE id = 'j1'").ok());
  REQUIRE(count().ok());
  CHECK(rows == 0);
}

TEST_CASE("SqliteStore: each reign has a higher term, also after it was raised") {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/db";
  CHECK((*SqliteStore::Open(path))->term() == 1);
  {
    auto store = SqliteStore::Open(path);
    REQUIRE((*store)->term() == 2);
    REQUIRE((*store)->RaiseTerm(41).ok());
    CHECK((*store)->term() == 41);
  }
  CHECK((*SqliteStore::Open(path))->term() == 42);
}

TEST_CASE("SqliteStore: a term is never taken back, nor used again") {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/db";
  {
    auto store = SqliteStore::Open(path);
    REQUIRE((*store)->RaiseTerm(41).ok());
    for (const uint64_t term :
         {uint64_t{0}, uint64_t{40}, uint64_t{41}, kMaxTerm + 1, UINT64_MAX}) {
      INFO(term);
      const Status status = (*store)->RaiseTerm(term);
      CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
      CHECK_THAT(Message(status), Catch::Contains("its term is 41") &&
                                      Catch::Contains("got " + std::to_string(term)));
      CHECK((*store)->term() == 41);
    }
    CHECK((*store)->RaiseTerm(kMaxTerm - 1).ok());
  }
  {
    auto store = SqliteStore::Open(path);
    REQUIRE(store.ok());
    CHECK((*store)->term() == kMaxTerm);
  }
  // No number is left for another reign.
  const auto store = SqliteStore::Open(path);
  CHECK(store.status().code() == absl::StatusCode::kDataLoss);
  CHECK_THAT(Message(store.status()), Catch::Contains("its term is 9223372036854775807"));
}

TEST_CASE("SqliteStore: a key whose insertion seemed to fail is stored once, with its new number") {
  TemporaryFolder folder;
  auto store = SqliteStore::Open(folder.path() + "/db");
  REQUIRE((*store)->InsertJob(MakeJob(1, "k")).ok());
  REQUIRE((*store)->InsertJob(MakeJob(2, "other")).ok());
  REQUIRE((*store)->InsertJob(MakeJob(3, "k")).ok());
  const auto jobs = (*store)->LoadJobs();
  REQUIRE(jobs.ok());
  REQUIRE(jobs->size() == 2);
  CHECK(jobs->at(0).number == 2);
  CHECK(jobs->at(1).number == 3);
}

TEST_CASE("SqliteStore: a number whose insertion seemed to fail is used again") {
  TemporaryFolder folder;
  auto store = SqliteStore::Open(folder.path() + "/db");
  REQUIRE((*store)->InsertJob(MakeJob(1, "nobody was told")).ok());
  REQUIRE((*store)->InsertJob(MakeJob(1, "k")).ok());
  const auto jobs = (*store)->LoadJobs();
  REQUIRE(jobs.ok());
  REQUIRE(jobs->size() == 1);
  CHECK(jobs->at(0).idempotency_key == "k");
  CHECK(jobs->at(0).spec_sha256 == "sha of k");
}

TEST_CASE("SqliteStore: of a job that is removed its number and its key stay") {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/db";
  const RemovedJob first{1, "j1", "k1", "sha of k1"}, third{3, "j3", "k3", "sha of k3"};
  {
    auto store = SqliteStore::Open(path);
    REQUIRE(store.ok());
    MetricBatch batch;
    batch.epochs[4].set_step(4);
    for (const uint64_t number : {1, 2, 3}) {
      REQUIRE((*store)->InsertJob(MakeJob(number, fmt::format("k{}", number))).ok());
      const std::string id = fmt::format("j{}", number);
      REQUIRE((*store)->InsertCheckpoint(MakeCheckpoint(id, 4)).ok());
      REQUIRE((*store)->SaveMetrics(id, batch).ok());
    }
    // All of them, or none.
    CHECK_FALSE((*store)->RemoveJobs({first, {7, "j7", "k7", ""}}).ok());
    CHECK((*store)->LoadJobs()->size() == 3);
    CHECK((*store)->LoadRemoved()->empty());
    CHECK((*store)->LoadCheckpoints()->size() == 3);
    REQUIRE((*store)->RemoveJobs({first, third}).ok());
    CHECK((*store)->RemoveJobs({first, third}).ok());  // once more
  }
  auto store = SqliteStore::Open(path);
  REQUIRE(store.ok());
  const auto jobs = (*store)->LoadJobs();
  REQUIRE(jobs.ok());
  REQUIRE(jobs->size() == 1);
  CHECK(jobs->at(0).id() == "j2");
  const auto checkpoints = (*store)->LoadCheckpoints();
  REQUIRE(checkpoints->size() == 1);
  CHECK(checkpoints->at(0).job_id == "j2");
  for (const auto& [id, points] : std::map<std::string, size_t>{{"j1", 0}, {"j2", 1}, {"j3", 0}}) {
    const auto page = (*store)->LoadMetrics(id, v1::METRIC_SERIES_EPOCHS, std::nullopt, 1'000);
    CHECK(page->points.size() == points);
  }
  const auto removed = (*store)->LoadRemoved();
  REQUIRE(removed.ok());
  REQUIRE(removed->size() == 2);
  CHECK(removed->at(0).number == 1);
  CHECK(removed->at(1).number == 3);
  CHECK(removed->at(1).job_id == "j3");
  CHECK(removed->at(1).idempotency_key == "k3");
  CHECK(removed->at(1).spec_sha256 == "sha of k3");
}

TEST_CASE("SqliteStore: a job that is not there cannot be saved") {
  TemporaryFolder folder;
  auto store = SqliteStore::Open(folder.path() + "/db");
  CHECK_FALSE((*store)->SaveJob(MakeJob(1, "k")).ok());
}

TEST_CASE("SqliteStore: of writes that go together one that fails takes no other with it") {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/db";
  {
    const auto store = SqliteStore::Open(path);
    REQUIRE(store.ok());
    MetricBatch batch;
    batch.epochs[4].set_step(4);
    const std::vector<StoreWrite> writes = {InsertJob{MakeJob(1, "k1")}, SaveMetrics{"j1", batch},
                                            SaveJob{MakeJob(7, "k7")}, RaiseTerm{9},
                                            InsertJob{MakeJob(2, "k2")}};
    std::vector<const StoreWrite*> together;
    for (const StoreWrite& write : writes) together.push_back(&write);
    const std::vector<const StoreWrite*> right = {together[0], together[1]};
    CHECK((*store)->WriteAll(right) == std::vector<Status>(2));
    const std::vector<Status> statuses = (*store)->WriteAll({together[2], together[4]});
    REQUIRE(statuses.size() == 2);
    CHECK(statuses[0].code() == absl::StatusCode::kInternal);
    CHECK(statuses[1].ok());
    CHECK((*store)->WriteAll({together[0], together[3]}) == std::vector<Status>(2));
    CHECK((*store)->term() == 9);
  }
  const auto store = SqliteStore::Open(path);
  REQUIRE(store.ok());
  CHECK((*store)->LoadJobs()->size() == 2);
  const auto page = (*store)->LoadMetrics("j1", v1::METRIC_SERIES_EPOCHS, std::nullopt, 1'000);
  REQUIRE(page.ok());
  CHECK(page->points.size() == 1);
}

TEST_CASE("SqliteStore: a second opener is refused while the first lives") {
  TemporaryFolder folder;
  auto first = SqliteStore::Open(folder.path() + "/db");
  REQUIRE(first.ok());
  CHECK_FALSE(SqliteStore::Open(folder.path() + "/db").ok());
  first->reset();
  CHECK(SqliteStore::Open(folder.path() + "/db").ok());
}

TEST_CASE("SqliteStore: a damaged file and another schema are refused with their path") {
  TemporaryFolder folder;
  const std::string garbage = folder.path() + "/garbage";
  std::ofstream(garbage) << std::string(8192, 'x');
  const auto damaged = SqliteStore::Open(garbage);
  REQUIRE_FALSE(damaged.ok());
  CHECK(Message(damaged.status()).find(garbage) != std::string::npos);

  for (const char* version : {"1", "99"}) {
    const std::string other = folder.path() + "/of " + version;
    sqlite3* handle = nullptr;
    REQUIRE(sqlite3_open(other.c_str(), &handle) == SQLITE_OK);
    const std::string pragma = std::string("PRAGMA user_version=") + version;
    REQUIRE(sqlite3_exec(handle, pragma.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
    sqlite3_close(handle);
    const auto refused = SqliteStore::Open(other);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK_THAT(Message(refused.status()), Catch::Contains("start with another --data-dir"));
  }
}

TEST_CASE("DataFolder: a second coordinator on the same folder is refused") {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/a/b";
  auto first = DataFolder::Lock(path);
  REQUIRE(first.ok());
  const auto second = DataFolder::Lock(path, {});
  REQUIRE(second.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Message(second.status()).find("is used by another ringmaster") != std::string::npos);
  first->reset();
  CHECK(DataFolder::Lock(path).ok());
}

TEST_CASE("DataFolder: a path that is a file is refused") {
  TemporaryFolder folder;
  std::ofstream(folder.path() + "/file") << "x";
  CHECK(DataFolder::Lock(folder.path() + "/file").status().code() ==
        absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace ringmaster::coordinator
