#include <poll.h>

#include <csignal>

#include <catch2/catch.hpp>

#include "cli/child_process.h"

namespace ringmaster::cli {
namespace {

// Everything that the child says until it closes its output, 10 s at most.
std::vector<std::string> LinesOf(ChildProcess& child) {
  std::vector<std::string> lines;
  while (child.output() >= 0) {
    pollfd wait = {child.output(), POLLIN, 0};
    if (poll(&wait, 1, 10'000) <= 0) break;
    child.ReadLines([&](const std::string& line) { lines.push_back(line); });
  }
  return lines;
}

// Its output is closed, so it ends now; Reap() alone does not wait.
void AwaitEnd(ChildProcess& child) {
  for (int i = 0; i < 1000 && !child.Reap(); ++i) poll(nullptr, 0, 10);
}

TEST_CASE("ChildProcess: both outputs come as lines, the last one without an end too") {
  auto child = ChildProcess::Start("sh", {"/bin/sh", "-c", "echo one; echo two >&2; printf three"});
  REQUIRE(child.ok());
  CHECK(LinesOf(*child) == std::vector<std::string>{"one", "two", "three"});
  AwaitEnd(*child);
  CHECK_FALSE(child->running());
  CHECK(child->ended_well());
}

TEST_CASE("ChildProcess: says how it ended") {
  auto failed = ChildProcess::Start("sh", {"/bin/sh", "-c", "exit 7"});
  REQUIRE(failed.ok());
  LinesOf(*failed);
  AwaitEnd(*failed);
  CHECK_FALSE(failed->ended_well());
  CHECK(failed->HowItEnded() == "ended with exit code 7");

  auto killed =
      ChildProcess::Start("sh", {"/bin/sh", "-c", "echo up; exec cat /dev/zero >/dev/null"});
  REQUIRE(killed.ok());
  killed->Signal(SIGKILL);
  LinesOf(*killed);
  AwaitEnd(*killed);
  CHECK(killed->HowItEnded() == "was ended by signal 9 (Killed)");
}

TEST_CASE("ChildProcess: a program that is not there ends with 127 and a word why") {
  auto child = ChildProcess::Start("nothing", {"/no/such/program"});
  REQUIRE(child.ok());
  CHECK(LinesOf(*child) == std::vector<std::string>{"cannot be executed"});
  AwaitEnd(*child);
  CHECK(child->HowItEnded() == "ended with exit code 127");
}

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
