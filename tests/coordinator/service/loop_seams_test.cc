#include "coordinator/service/loop_seams.h"

#include <spdlog/spdlog.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/fake_checkpoint.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::coordinator {
namespace {

// Checkpoints of j0001 of steps 10, 20, 30, and the events that the disk thread tells of them.
struct ReadFolder {
  ReadFolder() {
    spdlog::set_level(spdlog::level::off);
    for (const uint64_t step : {10, 20, 30}) {
      CheckpointRecord& record = records[step];
      record.job_id = "j0001";
      record.ref =
          testing::StoreCheckpoint(folder, "j0001", testing::MakeCheckpoint(step, "aa", "bb"));
    }
  }
  ~ReadFolder() { loop.Stop(); }
  // Runs whatever the disk thread has to do.
  Event Told() {
    loop.Start();
    std::future<Event> future = told.get_future();
    REQUIRE(future.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    return future.get();
  }

  TemporaryFolder root;
  CheckpointFolder folder{root.path()};
  std::map<uint64_t, CheckpointRecord> records;
  std::promise<Event> told;
  std::optional<FindCheckpoint> put_off;
  std::string unlogged;
  Loop loop{{"disk", 64, std::chrono::seconds(1), nullptr}};
  UploadTable uploads;
  DiskThread disk{{&folder, &loop, &uploads,
                   [this](Event event) { told.set_value(std::move(event)); },
                   [this](FindCheckpoint search) { put_off = std::move(search); },
                   [this](const std::string& job) { unlogged = job; }}};
};

TEST_CASE_METHOD(ReadFolder, "DiskThread: all that is read back is whole, or what is not") {
  const uint64_t damaged = GENERATE(0, 20, 30);
  if (damaged != 0) testing::Damage(records[damaged].ref);
  disk.Read({"j0001", {records[30], records[20]}});
  const auto read = std::get<CheckpointsRead>(Told());
  CHECK(read.job_id == "j0001");
  CHECK(read.why.empty() == (damaged == 0));
  if (damaged == 0) return;
  CHECK_THAT(read.why,
             Catch::StartsWith(fmt::format("the one of step {} is not whole: ", damaged)));
}

TEST_CASE_METHOD(ReadFolder,
                 "DiskThread: the newest whole checkpoint is found, and why no newer one") {
  testing::Damage(records[30].ref);
  disk.Find({"j0001", {records[30], records[20], records[10]}});
  const auto found = std::get<CheckpointFound>(Told());
  REQUIRE(found.found);
  CHECK(found.found->ref.step() == 20);
  REQUIRE(found.skipped.size() == 1);
  CHECK_THAT(found.skipped[0], Catch::StartsWith("the checkpoint of step 30 cannot be used: "));
}

TEST_CASE_METHOD(ReadFolder, "DiskThread: a search that nobody can make is put off") {
  loop.Start();
  loop.Stop();
  disk.Find({"j0001", {records[30]}});
  REQUIRE(put_off);
  CHECK(put_off->candidates.size() == 1);
  disk.Read({"j0001", {records[30]}});
  const auto read = std::get<CheckpointsRead>(told.get_future().get());
  CHECK_THAT(read.why, Catch::StartsWith("the newer ones could not be read: "));
}

TEST_CASE_METHOD(ReadFolder, "DiskThread: of a job that is removed checkpoints and log lines go") {
  disk.RemoveJob("j0001");
  disk.Read({"j0002", {}});  // behind it
  (void)Told();
  CHECK(unlogged == "j0001");
  CHECK_FALSE(std::filesystem::exists(root.path() + "/j0001"));
}

TEST_CASE_METHOD(ReadFolder, "DiskThread: one that is removed is gone, and the others are there") {
  disk.Remove(records[10].ref.path());
  disk.Read({"j0001", {records[30], records[20]}});  // behind it
  CHECK(std::get<CheckpointsRead>(Told()).why.empty());
  CHECK_FALSE(std::filesystem::exists(records[10].ref.path()));
  CHECK(std::filesystem::exists(records[20].ref.path()));
}

}  // namespace
}  // namespace ringmaster::coordinator
