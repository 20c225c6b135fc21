#include "common/data/beneath.h"

#include <catch2/catch.hpp>

#include <filesystem>

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
  Descriptor folder_;
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
  const Descriptor file(OpenWithoutLinks(folder_.get(), "deep/file", Wanted::kFile));
  CHECK(file.valid());
  const Descriptor folder(OpenWithoutLinks(folder_.get(), "deep", Wanted::kFolder));
  CHECK(folder.valid());
  for (const char* path : {"escape", "link", "folder/file", "../out", "deep/../link",
                           "deep/../../out", "/etc/passwd", "deep//file"}) {
    INFO(path);
    CHECK(OpenWithoutLinks(folder_.get(), path, Wanted::kFile) == -1);
  }
}

}  // namespace
}  // namespace ringmaster::data
