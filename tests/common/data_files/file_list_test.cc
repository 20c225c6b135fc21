#include "common/data_files/file_list.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "common/data/kept_files.h"
#include "tests/support/kept_files.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::data_files {
namespace {

// The whole list; the first error.
StatusOr<std::unique_ptr<FileList>> ListAll(const std::string& root, const std::string& path,
                                            const std::string& state = "") {
  RING_ASSIGN_OR_RETURN(std::unique_ptr<FileList> list, FileList::Begin(root, path, state));
  while (!list->complete()) RING_RETURN_IF_ERROR(list->Step());
  return list;
}

// A time long enough ago that what a file is now is what it stays.
void MakeOld(const std::string& path) {
  timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

std::vector<std::string> NamesOf(const FileList& list) {
  std::vector<std::string> names;
  for (const ListedFile& file : list.files()) names.push_back(file.name);
  return names;
}

TEST_CASE("FileList: files of all folders by name, with the SHA-256 of each piece") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "data/b/c");
  const std::string large(kPieceBytes + 3, 'x');
  WriteWhole(folder / "data/b/c/large", large);
  WriteWhole(folder / "data/a", "");
  WriteWhole(folder / "data/b.txt", "small");
  WriteWhole(folder / "data/.hidden", "not part of it");
  const auto list = ListAll(folder.path(), "data");
  REQUIRE(list.ok());
  CHECK(NamesOf(**list) == std::vector<std::string>{"a", "b.txt", "b/c/large"});
  CHECK((*list)->total_bytes() == large.size() + 5);
  CHECK((*list)->known_bytes() == large.size() + 5);
  const std::vector<ListedFile>& files = (*list)->files();
  CHECK(files[0].pieces.empty());
  CHECK(files[1].pieces == std::vector{Sha256Of("small")});
  CHECK(files[2].pieces ==
        std::vector{Sha256Of(large.substr(0, kPieceBytes)), Sha256Of(large.substr(kPieceBytes))});
}

TEST_CASE("FileList: nothing outside of the folder is listed") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "root/data/inside");
  WriteWhole(folder / "secret", "secret");
  WriteWhole(folder / "root/data/inside/file", "its own");
  REQUIRE(symlink("../../secret", (folder / "root/data/out").c_str()) == 0);
  REQUIRE(symlink((folder / "secret").c_str(), (folder / "root/data/absolute").c_str()) == 0);
  REQUIRE(symlink("inside/file", (folder / "root/data/linked").c_str()) == 0);
  REQUIRE(mkfifo((folder / "root/data/pipe").c_str(), 0600) == 0);
  const auto list = ListAll(folder / "root", "data");
  REQUIRE(list.ok());
  CHECK(NamesOf(**list) == std::vector<std::string>{"inside/file", "linked"});
  CHECK((*list)->files()[1].pieces == std::vector{Sha256Of("its own")});
  CHECK(ListAll(folder / "root", "..").status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(ListAll(folder / "root", folder.path()).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(ListAll(folder / "root", "none").status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("FileList: folders that lead into each other without end are an error") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "data/a");
  WriteWhole(folder / "data/a/file", "x");
  REQUIRE(symlink("..", (folder / "data/a/above").c_str()) == 0);
  const auto list = ListAll(folder.path(), "data");
  CHECK(list.status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("FileList: what was hashed is remembered until the file changes") {
  const TemporaryFolder folder, state;
  std::filesystem::create_directories(folder / "data");
  WriteWhole(folder / "data/file", "before");
  MakeOld(folder / "data/file");
  REQUIRE(ListAll(folder.path(), "data", state.path()).ok());
  // The same size and time: only a memory can say that it is as before.
  WriteWhole(folder / "data/file", "BEFORE");
  MakeOld(folder / "data/file");
  auto list = ListAll(folder.path(), "data", state.path());
  REQUIRE(list.ok());
  CHECK((*list)->files()[0].pieces == std::vector{Sha256Of("before")});
  CHECK((*list)->known_bytes() == 6);
  WriteWhole(folder / "data/file", "after it changed");
  list = ListAll(folder.path(), "data", state.path());
  REQUIRE(list.ok());
  CHECK((*list)->files()[0].pieces == std::vector{Sha256Of("after it changed")});
}

TEST_CASE("FileList: a memory that is damaged costs time alone") {
  const TemporaryFolder folder, state;
  std::filesystem::create_directories(folder / "data");
  WriteWhole(folder / "data/file", "content");
  MakeOld(folder / "data/file");
  REQUIRE(ListAll(folder.path(), "data", state.path()).ok());
  for (const auto& memory : std::filesystem::directory_iterator(state.path())) {
    std::string text = ReadWhole(memory.path());
    text[text.size() - 10] = 'g';
    WriteWhole(memory.path(), text);
  }
  const auto list = ListAll(folder.path(), "data", state.path());
  REQUIRE(list.ok());
  CHECK((*list)->files()[0].pieces == std::vector{Sha256Of("content")});
}

TEST_CASE("FileList: a state folder remembers the folders that were listed last") {
  const TemporaryFolder folder, state;
  for (const std::string name : {"data", "other"}) {
    std::filesystem::create_directories(folder / name);
    WriteWhole(folder / (name + "/file"), "content");
    MakeOld(folder / (name + "/file"));
  }
  REQUIRE(ListAll(folder.path(), "data", state.path()).ok());
  const std::string own = std::filesystem::directory_iterator(state.path())->path().string();
  const size_t most = data::KeptFiles().files;
  const auto old = testing::WriteOld(state.path(), "pieces-", ".sha256", most + 3);
  // What is not of its kind stays: the hashes of a format's datasets.
  const auto before = testing::kLongAgo - std::chrono::seconds(1);
  WriteWhole(state / "mnist.sha256", "");
  testing::SetUsed(state / "mnist.sha256", before);
  // Listing the same again is using it, and writes nothing.
  testing::SetUsed(own, before);
  REQUIRE(ListAll(folder.path(), "data", state.path()).ok());
  CHECK(testing::NamesIn(state.path(), "").size() == most + 5);
  REQUIRE(ListAll(folder.path(), "other", state.path()).ok());
  CHECK(testing::NamesIn(state.path(), "").size() == most + 1);
  CHECK(std::filesystem::exists(own));
  CHECK(std::filesystem::exists(state / "mnist.sha256"));
  for (size_t i = 0; i < most + 3; ++i) CHECK(std::filesystem::exists(old[i]) == (i >= 5));
}

TEST_CASE("FileList: names that no file of a dataset has are refused") {
  for (const char* good : {"a", "a/b", "train/n01/x.jpg", "a b", "\xc3\xa4"})
    CHECK(CheckName(good).ok());
  for (const char* bad :
       {"", "/a", "a/", "a//b", "..", "../a", "a/../b", ".", "a/.b", ".git/x", "\xff"}) {
    INFO(bad);
    CHECK(CheckName(bad).code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK_FALSE(CheckName(std::string("a\0b", 3)).ok());
  CHECK_FALSE(CheckName(std::string(256, 'a')).ok());
}

}  // namespace
}  // namespace ringmaster::data_files
