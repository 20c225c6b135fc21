#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>

#include <sys/resource.h>
#include <sys/stat.h>
#include <catch2/catch.hpp>

#include "common/check.h"
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

TEST_CASE("OwnedFile: closes what it has, and what it had when it is given another") {
  const auto is_open = [](int file) { return fcntl(file, F_GETFD) >= 0; };
  OwnedFile first(open("/dev/null", O_RDONLY | O_CLOEXEC));
  OwnedFile second(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int had = first.get(), has = second.get();
  REQUIRE((first.valid() && second.valid()));
  first = std::move(second);
  CHECK(first.get() == has);
  CHECK_FALSE(second.valid());
  CHECK_FALSE(is_open(had));
  CHECK(is_open(has));
  first.Close();
  CHECK_FALSE(first.valid());
  CHECK_FALSE(is_open(has));
}

// Files of this process end after so many bytes: what begins before that is written in part.
class ShortDisk {
 public:
  explicit ShortDisk(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    RING_CHECK(getrlimit(RLIMIT_FSIZE, &before_) == 0, "the limit of files");
    const rlimit now = {bytes, before_.rlim_max};
    RING_CHECK(setrlimit(RLIMIT_FSIZE, &now) == 0, "a lower one");
  }
  ~ShortDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_ = {};
  void (*handler_)(int);
};

std::span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TEST_CASE("Files: all is written, in however many calls, or errno says why not") {
  const TemporaryFolder folder;
  const OwnedFile file(open((folder / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(WriteAll(file.get(), "0123456789"));
  REQUIRE(WriteAllAt(file.get(), 4, AsBytes("abcdefgh")));
  REQUIRE(WriteAll(file.get(), "-"));
  CHECK(ReadWhole(folder / "file") == "0123abcdef-h");
  bool at_end = true, at_place = true;
  int why = 0;
  {
    const ShortDisk short_disk(20);
    at_end = WriteAll(file.get(), std::string(15, 'e'));
    why = errno;
    at_place = WriteAllAt(file.get(), 18, AsBytes("pq"));
    at_place = at_place && !WriteAllAt(file.get(), 18, AsBytes("pqr"));
  }
  CHECK_FALSE(at_end);
  CHECK(why == EFBIG);
  CHECK(at_place);
  CHECK(ReadWhole(folder / "file") == "0123abcdef-eeeeeeepq");
}

TEST_CASE("Files: what is read ends where the file does, and errors are the system's") {
  const TemporaryFolder folder;
  WriteWhole(folder / "file", "0123456789");
  const OwnedFile file(open((folder / "file").c_str(), O_RDONLY | O_CLOEXEC));
  std::array<uint8_t, 8> bytes = {};
  CHECK(ReadUpTo(file.get(), 0, bytes).value_or(0) == 8);
  CHECK(ReadUpTo(file.get(), 7, bytes).value_or(0) == 3);
  CHECK(ReadUpTo(file.get(), 10, bytes).value_or(1) == 0);
  CHECK(ReadExactly(file.get(), 2, bytes).ok());
  CHECK(bytes.front() == '2');
  CHECK(ReadExactly(file.get(), 3, bytes).code() == absl::StatusCode::kDataLoss);
  CHECK(ReadExactly(file.get(), 3, 7).value_or("") == "3456789");
  CHECK(Message(ReadExactly(file.get(), 3, 8).status()) ==
        "it ends early: it shrank while it was in use");
  CHECK(ReadText(file.get(), 8, 100) == "89");
  const OwnedFile above(open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  CHECK(Message(ReadUpTo(above.get(), 0, bytes).status()) == "Is a directory");
  CHECK(ReadUpTo(above.get(), 0, bytes).status().code() == absl::StatusCode::kUnavailable);
  CHECK(ReadExactly(above.get(), 0, bytes) ==
        Status(absl::StatusCode::kDataLoss, "Is a directory"));
  CHECK(ReadText(above.get(), 0, 10).empty());
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
