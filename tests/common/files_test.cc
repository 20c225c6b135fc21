#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <sys/stat.h>
#include <catch2/catch.hpp>

#include "common/files.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster {
namespace {

mode_t ModeOf(const std::string& path) {
  struct stat found = {};
  REQUIRE(stat(path.c_str(), &found) == 0);
  return found.st_mode & 07777;
}

struct NoUmask {
  mode_t before = umask(0);
  ~NoUmask() { umask(before); }
};

TEST_CASE("Durable file: own folders and files are this user's alone, whatever the umask") {
  const TemporaryFolder folder;
  const NoUmask no_umask;
  const std::string inner = folder.path() + "/a/b/c";
  REQUIRE(MakePrivateFolder(inner).ok());
  for (const char* path : {"/a", "/a/b", "/a/b/c"}) CHECK(ModeOf(folder.path() + path) == 0700);
  REQUIRE(MakePrivateFile(inner + "/file").ok());
  CHECK(ModeOf(inner + "/file") == 0600);
  REQUIRE(WriteDurably(inner + "/durable", "text").ok());
  CHECK(ModeOf(inner + "/durable") == 0600);
}

TEST_CASE("Durable file: what was open to others is made this user's, but not a folder of others") {
  const TemporaryFolder folder;
  const NoUmask no_umask;
  const std::string open_to_all = folder.path() + "/open";
  REQUIRE(mkdir(open_to_all.c_str(), 0755) == 0);
  REQUIRE(MakePrivateFolder(open_to_all, IfThere::kKeep).ok());
  CHECK(ModeOf(open_to_all) == 0755);
  REQUIRE(MakePrivateFolder(open_to_all).ok());
  CHECK(ModeOf(open_to_all) == 0700);
  std::ofstream(open_to_all + "/file") << "text";
  CHECK(ModeOf(open_to_all + "/file") == 0666);
  REQUIRE(MakePrivateFile(open_to_all + "/file").ok());
  CHECK(ModeOf(open_to_all + "/file") == 0600);
  CHECK(std::filesystem::file_size(open_to_all + "/file") == 4);
}

TEST_CASE("Durable file: no folder is made where a file is, and no file through a link") {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/file";
  REQUIRE(MakePrivateFile(file).ok());
  CHECK(Message(MakePrivateFolder(file)) == "cannot use as a folder " + file + ": Not a directory");
  CHECK_FALSE(MakePrivateFolder(file + "/inner").ok());
  std::filesystem::create_symlink(folder.path() + "/elsewhere", folder.path() + "/link");
  CHECK_FALSE(MakePrivateFile(folder.path() + "/link").ok());
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/elsewhere"));
}

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

TEST_CASE("Files: which names a file of a checkpoint may have") {
  for (const char* name : {"model.safetensors", "manifest.json", "a", "A-b_0."}) {
    CHECK(IsPlainFileName(name));
  }
  CHECK(IsPlainFileName(std::string(100, 'a')));
  CHECK_FALSE(IsPlainFileName(std::string(101, 'a')));
  for (const char* name :
       {"", ".", "..", ".hidden", "../x", "/x", "a/b", "a b", "a\\b", "\xc3\xa9"}) {
    INFO(name);
    CHECK_FALSE(IsPlainFileName(name));
  }
  CHECK_FALSE(IsPlainFileName(std::string("a\0b", 3)));
}

}  // namespace

}  // namespace ringmaster
