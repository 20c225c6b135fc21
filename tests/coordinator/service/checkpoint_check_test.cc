#include "coordinator/service/checkpoint_check.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "tests/support/fake_checkpoint.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::coordinator {
namespace {

using Next = CheckpointCheck::Next;

// Three checkpoints of 3 MB, of steps 10, 20, 30.
struct CheckedFolder {
  CheckedFolder() {
    for (const uint64_t step : {10, 20, 30}) {
      refs.push_back(testing::StoreCheckpoint(
          folder, "j0001", testing::MakeCheckpoint(step, "aa", std::to_string(step))));
    }
    disk.Start();
  }

  // `ok DIGEST` or the error of each one that was told of; last the status of the end.
  std::vector<std::string> Check(size_t enough) {
    std::vector<std::string> told;  // disk thread, until the end
    std::promise<Status> end;
    CheckpointCheck::Hearer hearer;
    hearer.tell = [&](size_t index, const CheckpointCheck::Verdict& verdict) {
      told.push_back(verdict.status.ok() ? "ok " + verdict.digest : Message(verdict.status));
      last_index = index;
      return told.size() == enough ? Next::kEnough : Next::kGoOn;
    };
    hearer.wanted = [&] {
      ++parts;
      if (before_part) before_part();
      return told.size() < cancel_after;
    };
    hearer.end = [&](const Status& status) { end.set_value(status); };
    CheckpointCheck::Begin(disk, refs, std::move(hearer));
    told.push_back("end " + Message(end.get_future().get()));
    return told;
  }

  TemporaryFolder root;
  CheckpointFolder folder{root.path()};
  std::vector<v1::CheckpointRef> refs;
  size_t cancel_after = 100;
  std::function<void()> before_part;  // disk thread
  size_t parts = 0;
  size_t last_index = 0;
  Loop disk{{"disk", 4, std::chrono::seconds(1), nullptr}};
};

using Told = std::vector<std::string>;

TEST_CASE_METHOD(CheckedFolder,
                 "CheckpointCheck: whole ones are told with their digest, in order") {
  CHECK(Check(0) == Told{"ok 10", "ok 20", "ok 30", "end "});
  CHECK(last_index == 2);
}

TEST_CASE_METHOD(CheckedFolder, "CheckpointCheck: the hearer says when it is enough") {
  CHECK(Check(2) == Told{"ok 10", "ok 20", "end "});
}

TEST_CASE_METHOD(CheckedFolder, "CheckpointCheck: it ends when nobody wants it any more") {
  cancel_after = 1;
  CHECK(Check(0) == Told{"ok 10", "end "});
}

TEST_CASE_METHOD(CheckedFolder,
                 "CheckpointCheck: what is wrong is named, and the others are read") {
  testing::Damage(refs[0]);
  std::filesystem::remove_all(refs[1].path());
  Told told = Check(0);
  REQUIRE(told.size() == 4);
  CHECK_THAT(told[0], Catch::StartsWith(refs[0].path() + "/model.safetensors has SHA-256 "));
  CHECK_THAT(told[1], Catch::StartsWith(refs[1].path()));
  CHECK(told[2] == "ok 30");

  refs[2].set_step(31);
  told = Check(0);
  CHECK_THAT(told[2], Catch::EndsWith("/manifest.json is of step 30, expected 31"));
}

TEST_CASE_METHOD(CheckedFolder,
                 "CheckpointCheck: a large one is read in parts, also when it is removed") {
  refs = {testing::StoreCheckpoint(folder, "j0002",
                                   testing::MakeCheckpoint(40, "aa", "40", 40'000'000))};
  before_part = [this] {
    if (parts == 2) (void)folder.Remove(refs[0].path());
  };
  CHECK(Check(0) == Told{"ok 40", "end "});
  CHECK(parts >= 3);
  CHECK_FALSE(std::filesystem::exists(refs[0].path()));
}

TEST_CASE_METHOD(CheckedFolder,
                 "CheckpointCheck: a disk thread that stopped is UNAVAILABLE, not damage") {
  disk.Stop();
  const Told told = Check(0);
  REQUIRE(told.size() == 1);
  CHECK_THAT(told[0], Catch::Contains("stopping or overloaded"));
}

TEST_CASE_METHOD(CheckedFolder,
                 "CheckpointCheck: of no checkpoint there is nothing to tell but the end") {
  refs.clear();
  CHECK(Check(0) == Told{"end "});
}

}  // namespace
}  // namespace ringmaster::coordinator
