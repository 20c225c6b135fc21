#include "common/data/beneath.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <stop_token>
#include <string>
#include <thread>

#include "tests/support/temporary_folder.h"

namespace ringmaster::data {
namespace {

namespace fs = std::filesystem;

// root/in/deep/file, root/out, and links from root/in to both.
class TreeFixture {
 public:
  TreeFixture() {
    fs::create_directories(tree_ / "in/deep");
    WriteWhole(tree_ / "in/deep/file", "inside");
    WriteWhole(tree_ / "out", "outside");
    fs::create_symlink("deep/file", tree_ / "in/link");
    fs::create_symlink("../out", tree_ / "in/escape");
    fs::create_symlink("deep", tree_ / "in/folder");
    auto opened = OpenFolder(tree_ / "in");
    REQUIRE(opened.ok());
    folder_ = *std::move(opened);
  }

 protected:
  TemporaryFolder tree_;
  OwnedFile folder_;
};

TEST_CASE_METHOD(TreeFixture,
                 "Beneath: files and links inside are opened, whatever leads out is not") {
  for (const char* path : {"deep/file", "link", "folder/file", "deep/../link", "./deep/file"}) {
    INFO(path);
    CHECK(OpenBeneath(folder_, path, Wanted::kFile).ok());
  }
  for (const char* path : {"escape", "../out", "deep/../../out", "/etc/passwd"}) {
    INFO(path);
    CHECK(OpenBeneath(folder_, path, Wanted::kFile).status().code() ==
          absl::StatusCode::kInvalidArgument);
  }
  CHECK(OpenBeneath(folder_, "deep/none", Wanted::kFile).status().code() ==
        absl::StatusCode::kNotFound);
  CHECK(OpenBeneath(folder_, "deep", Wanted::kFolder).ok());
  CHECK(OpenBeneath(folder_, ".", Wanted::kFolder).ok());
  CHECK(Message(OpenBeneath(folder_, "deep", Wanted::kFile).status()) ==
        "deep is not a regular file");
}

TEST_CASE_METHOD(TreeFixture, "Beneath: on an old kernel plain paths are opened and no link is") {
  const OwnedFile file(OpenWithoutLinks(folder_.get(), "deep/file", Wanted::kFile));
  CHECK(file.valid());
  const OwnedFile folder(OpenWithoutLinks(folder_.get(), "deep", Wanted::kFolder));
  CHECK(folder.valid());
  for (const char* path : {"escape", "link", "folder/file", "../out", "deep/../link",
                           "deep/../../out", "/etc/passwd", "deep//file"}) {
    INFO(path);
    CHECK(OpenWithoutLinks(folder_.get(), path, Wanted::kFile) == -1);
  }
}

uint64_t InodeOf(int descriptor) {
  struct stat found = {};
  REQUIRE(fstat(descriptor, &found) == 0);
  return found.st_ino;
}

TEST_CASE_METHOD(TreeFixture,
                 "Beneath: names that are exchanged while they are opened lead nowhere else") {
  // `deep` and a link out of the folder take each other's place, and so do a file and such a link.
  fs::create_directory(tree_ / "elsewhere");
  WriteWhole(tree_ / "elsewhere/file", "outside");
  fs::create_symlink("../elsewhere", tree_ / "in/swapped");
  const std::string deep = tree_ / "in/deep", swapped = tree_ / "in/swapped";
  const std::string file = tree_ / "in/plain", escape = tree_ / "in/escape";
  fs::create_hard_link(tree_ / "in/deep/file", file);
  const OwnedFile inside(open((deep + "/file").c_str(), O_RDONLY | O_CLOEXEC));
  const uint64_t right = InodeOf(inside.get());
  std::jthread exchange([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      (void)renameat2(AT_FDCWD, deep.c_str(), AT_FDCWD, swapped.c_str(), RENAME_EXCHANGE);
      (void)renameat2(AT_FDCWD, file.c_str(), AT_FDCWD, escape.c_str(), RENAME_EXCHANGE);
    }
  });
  int opened = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    for (const char* path : {"deep/file", "swapped/file", "plain", "escape"}) {
      if (const auto found = OpenBeneath(folder_, path, Wanted::kFile); found.ok()) {
        ++opened;
        if (InodeOf(found->get()) != right) FAIL(path << " led out");
      } else {
        ++refused;
      }
      const OwnedFile plain(OpenWithoutLinks(folder_.get(), path, Wanted::kFile));
      if (plain.valid() && InodeOf(plain.get()) != right) FAIL(path << " led out, without openat2");
    }
  }
  CHECK(opened > 0);
  CHECK(refused > 0);
}

TEST_CASE_METHOD(TreeFixture, "Beneath: what is renamed elsewhere is no obstacle to `..`") {
  // The kernel's answer is EAGAIN then, and not about the path.
  const std::string one = tree_ / "one", other = tree_ / "other";
  WriteWhole(one, "renamed");
  std::jthread rename([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      (void)std::rename(one.c_str(), other.c_str());
      (void)std::rename(other.c_str(), one.c_str());
    }
  });
  for (int i = 0; i < 20'000; ++i) {
    const auto found = OpenBeneath(folder_, "deep/../deep/../deep/file", Wanted::kFile);
    if (!found.ok()) FAIL(i << ": " << Message(found.status()));
  }
}

}  // namespace
}  // namespace ringmaster::data
