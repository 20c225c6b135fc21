#include "common/folder_lock.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <string>

#include "tests/support/temporary_folder.h"

namespace ringmaster {
namespace {

using Catch::Contains;

FolderLock::Options Impatient() {
  return {.flag = "--state-dir", .program = "ringworker", .patience = {}, .waits = [](auto&) {}};
}

TEST_CASE("FolderLock: one holder at a time, and the next one when it is gone") {
  const TemporaryFolder folder;
  auto first = FolderLock::Take(folder.path(), Impatient());
  REQUIRE(first.ok());
  const auto second = FolderLock::Take(folder.path(), Impatient());
  REQUIRE(second.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(Message(second.status()),
             Contains("--state-dir " + folder.path() + " is used by another ringworker") &&
                 Contains(folder.path() + "/lock is locked (process " + std::to_string(getpid())) &&
                 Contains("give each one a folder of its own"));
  first->reset();
  CHECK(FolderLock::Take(folder.path(), Impatient()).ok());
}

TEST_CASE("FolderLock: a holder that is about to end is waited for, and that is said once") {
  const TemporaryFolder folder;
  auto first = FolderLock::Take(folder.path(), Impatient());
  REQUIRE(first.ok());
  std::vector<std::string> said;
  FolderLock::Options patient = Impatient();
  patient.patience = std::chrono::seconds(60);
  patient.waits = [&](const std::string& line) {
    said.push_back(line);
    first->reset();
  };
  CHECK(FolderLock::Take(folder.path(), patient).ok());
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], Contains(folder.path()) && Contains(std::to_string(getpid())) &&
                          Contains("waiting up to 60 s"));
}

TEST_CASE("FolderLock: a folder that is none is an error that says so") {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/file") << "x";
  const auto lock = FolderLock::Take(folder.path() + "/file", Impatient());
  CHECK(lock.status().code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(Message(lock.status()), Contains("/file/lock: Not a directory"));
}

}  // namespace
}  // namespace ringmaster
