#include "cli/own_programs.h"

#include <catch2/catch.hpp>

namespace ringmaster::cli {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("OwnPrograms: those that are missing are named with the folder") {
  const auto folder = FolderOf({"ringctl"});
  REQUIRE(folder.ok());
  CHECK(std::string(RINGMASTER_RINGCTL) == *folder + "/ringctl");
  const auto missing = FolderOf({"ringctl", "ringtool"});
  CHECK(Message(missing.status()) == "there is no ringtool beside ringctl in " + *folder);
}

TEST_CASE("OwnPrograms: a program's exit code is that of the run") {
  CHECK(*RunToEnd({"/bin/sh", "-c", "exit 0"}) == 0);
  CHECK(*RunToEnd({"/bin/sh", "-c", "exit 7"}) == 7);
  CHECK(*RunToEnd({"/bin/sh", "-c", "kill -TERM $$"}) == 128 + 15);
  const auto none = RunToEnd({"/no/such/program"});
  CHECK_THAT(Message(none.status()), Contains("/no/such/program cannot be executed"));
}

}  // namespace
}  // namespace ringmaster::cli
