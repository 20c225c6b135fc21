#include "worker/identity.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "common/durable_file.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::worker {
namespace {

TEST_CASE("Identity: every process start has an incarnation of its own") {
  const std::string first = RandomIncarnation();
  CHECK(first.size() == 32);
  CHECK(first.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(first != RandomIncarnation());
}

TEST_CASE("Identity: the program knows its build id") {
  CHECK(BuildId().size() == 40);  // SHA-1
}

TEST_CASE("Identity: the highest term outlives the process") {
  const TemporaryFolder folder;
  CHECK(*LoadHighestTerm(folder.path()) == 0);
  REQUIRE(StoreHighestTerm(folder.path(), 7).ok());
  REQUIRE(StoreHighestTerm(folder.path(), 8).ok());
  CHECK(*LoadHighestTerm(folder.path()) == 8);
}

TEST_CASE("Identity: a term that is not a number is not taken for zero") {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/term") << "seven";
  CHECK(LoadHighestTerm(folder.path()).status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("WriteDurably: it replaces a file whole and leaves no temporary") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  REQUIRE(WriteDurably(path, "first, longer").ok());
  REQUIRE(WriteDurably(path, "second").ok());
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  CHECK(text == "second");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("WriteDurably: a folder that is not there is an error that names it") {
  const Status status = WriteDurably("/nonexistent/file", "x");
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(Message(status).find("/nonexistent/file") != std::string::npos);
}

}  // namespace
}  // namespace ringmaster::worker
