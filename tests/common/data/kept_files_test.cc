// What is kept of csv-*.rows, *.records and pieces-*.sha256 is tested with who writes them.
#include "common/data/kept_files.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>

#include "tests/support/kept_files.h"

namespace ringmaster::data {
namespace {

using testing::kLongAgo;
using testing::NamesIn;
using testing::SetUsed;

TEST_CASE("Kept files: what was used longest ago goes, but nothing that is open") {
  const TemporaryFolder folder;
  int seconds = 0;
  for (const char* name : {"a-1.rows", "a-2.rows", "a-3.rows", "a-4.rows", "b-5.rows", ".rows.abc",
                           "a-6.sha256", "term"}) {
    WriteWhole(folder / name, "0123456789");
    SetUsed(folder / name, kLongAgo + std::chrono::seconds(++seconds));
  }
  const std::set<std::string> others = {".rows.abc", "a-6.sha256", "b-5.rows", "term"};
  const auto left = [&] {
    const std::set<std::string> all = NamesIn(folder.path(), "");
    std::set<std::string> names;
    std::ranges::set_difference(all, others, std::inserter(names, names.end()));
    return names;
  };
  const auto drop = [&](size_t files, uint64_t bytes) {
    DropOldest(folder.path(), {.suffix = ".rows", .prefix = "a-", .files = files, .bytes = bytes});
  };
  OwnedFile open_one(open((folder / "a-2.rows").c_str(), O_RDONLY | O_CLOEXEC));
  REQUIRE(flock(open_one.get(), LOCK_SH | LOCK_NB) == 0);
  drop(4, 40);
  CHECK(left().size() == 4);
  drop(2, 40);
  CHECK(left() == std::set<std::string>{"a-2.rows", "a-4.rows"});
  drop(0, 0);
  CHECK(left() == std::set<std::string>{"a-2.rows", "a-4.rows"});
  open_one.Close();
  drop(4, 10);
  CHECK(left() == std::set<std::string>{"a-4.rows"});
  drop(0, 0);
  CHECK(left() == std::set<std::string>{"a-4.rows"});
  const std::set<std::string> names = NamesIn(folder.path(), "");
  CHECK(std::ranges::includes(names, others));
}

TEST_CASE("Kept files: one that is read is used") {
  const TemporaryFolder folder;
  const auto old = testing::WriteOld(folder.path(), "", ".records", 3);
  CHECK(ReadKept(old[0]) == "old");
  CHECK_FALSE(ReadKept(folder / "none.records"));
  DropOldest(folder.path(), {.suffix = ".records", .files = 1});
  CHECK(NamesIn(folder.path(), "") == std::set<std::string>{"old000.records"});
}

}  // namespace
}  // namespace ringmaster::data
