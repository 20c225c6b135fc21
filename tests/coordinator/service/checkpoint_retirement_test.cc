#include "coordinator/service/checkpoint_retirement.h"

#include <spdlog/spdlog.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "common/bounded_queue.h"
#include "tests/support/fake_checkpoint.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::coordinator {
namespace {

// Checkpoints of j0001 of steps 10, 20, 30, 40, and a control loop that is this thread.
struct RetiredFolder {
  RetiredFolder() {
    spdlog::set_level(spdlog::level::off);
    for (const uint64_t step : {10, 20, 30, 40}) {
      CheckpointRecord& record = records[step];
      record.job_id = "j0001";
      record.ref =
          testing::StoreCheckpoint(folder, "j0001", testing::MakeCheckpoint(step, "aa", "bb"));
    }
    disk.Start();
  }
  ~RetiredFolder() { disk.Stop(); }

  void Add(std::vector<uint64_t> steps) {
    for (const uint64_t step : steps) retirement.Add(records[step]);
  }
  // Runs the next task that came to the control loop.
  void RunOne() {
    const auto task = tasks.Pop(std::chrono::steady_clock::now() + std::chrono::seconds(20));
    REQUIRE(task);
    (*task)();
  }
  // When the disk thread has done what it has to do.
  void Settle() {
    std::promise<void> done;
    REQUIRE(disk.Post([&] { done.set_value(); }));
    done.get_future().wait();
  }
  bool Exists(uint64_t step) { return std::filesystem::exists(records[step].ref.path()); }

  TemporaryFolder root;
  CheckpointFolder folder{root.path()};
  std::map<uint64_t, CheckpointRecord> records;
  std::vector<uint64_t> forgotten;
  std::map<uint64_t, std::string> retained;
  bool store_fails = false;
  BoundedQueue<std::function<void()>> tasks{64};
  Loop disk{{"disk", 64, std::chrono::seconds(1), nullptr}};
  CheckpointRetirement retirement{
      {&folder, &disk, [this](std::function<void()> task) { (void)tasks.TryPush(std::move(task)); },
       [this](const CheckpointRecord& record) {
         if (!store_fails) forgotten.push_back(record.ref.step());
         return !store_fails;
       },
       [this](const CheckpointRecord& record, const std::string& why) {
         retained[record.ref.step()] = why;
       }}};
};

using Steps = std::vector<uint64_t>;

TEST_CASE_METHOD(RetiredFolder,
                 "CheckpointRetirement: one goes once the two newest were read back") {
  Add({10, 20, 30});
  retirement.Retire(records[10]);
  CHECK(forgotten.empty());
  CHECK(retirement.Waiting("j0001").size() == 1);
  RunOne();
  Settle();
  CHECK(forgotten == Steps{10});
  CHECK_FALSE(Exists(10));
  CHECK(Exists(20));
  CHECK(Exists(30));
  CHECK(retained.empty());
  CHECK(retirement.Waiting("j0001").empty());
}

TEST_CASE_METHOD(RetiredFolder, "CheckpointRetirement: none goes while a newer one is damaged") {
  Add({10, 20, 30});
  const uint64_t damaged = GENERATE(20, 30);
  testing::Damage(records[damaged].ref);
  retirement.Retire(records[10]);
  RunOne();
  Settle();
  CHECK(forgotten.empty());
  CHECK(Exists(10));
  REQUIRE(retained.size() == 1);
  CHECK_THAT(retained[10],
             Catch::StartsWith(fmt::format("the one of step {} is not whole: ", damaged)));
}

TEST_CASE_METHOD(RetiredFolder,
                 "CheckpointRetirement: a retained one goes when newer ones are whole") {
  Add({10, 20, 30});
  testing::Damage(records[20].ref);
  retirement.Retire(records[10]);
  RunOne();
  REQUIRE(retained.count(10) == 1);
  records[50] = records[40];
  records[50].ref =
      testing::StoreCheckpoint(folder, "j0001", testing::MakeCheckpoint(50, "aa", "bb"));
  Add({40, 50});
  retirement.Retire(records[10]);
  retirement.Retire(records[20]);  // while the first is looked at
  CHECK(retirement.Waiting("j0001").front().ref.step() == 20);
  RunOne();
  RunOne();
  Settle();
  CHECK(forgotten == Steps{10, 20});
  CHECK_FALSE(Exists(10));
  CHECK_FALSE(Exists(20));
  CHECK(Exists(30));
}

TEST_CASE_METHOD(RetiredFolder, "CheckpointRetirement: two others stay, whatever was asked for") {
  Add({10, 20});
  retirement.Retire(records[10]);
  RunOne();
  Settle();
  CHECK(Exists(10));
  CHECK(retained[10] == "there are no two newer ones");
}

TEST_CASE_METHOD(RetiredFolder,
                 "CheckpointRetirement: what the store cannot forget stays on the disk") {
  Add({10, 20, 30});
  store_fails = true;
  retirement.Retire(records[10]);
  RunOne();
  Settle();
  CHECK(Exists(10));
  CHECK(retained[10] == "the store cannot be written");
}

}  // namespace
}  // namespace ringmaster::coordinator
