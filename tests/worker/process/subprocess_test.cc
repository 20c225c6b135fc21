#include "worker/process/subprocess.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "common/files.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster {
namespace {

// While this process has a lease on the program its exec hangs, for as long as the kernel waits for
// leases: /proc/sys/fs/lease-break-time, 45 s.
TEST_CASE("Subprocess: one that hangs on its way to the program is killed, and never runs") {
  const TemporaryFolder folder;
  const std::string program = folder / "program", ran = folder / "ran";
  WriteWhole(program, "#!/bin/sh\n: > " + ran + "\n");
  REQUIRE(chmod(program.c_str(), 0700) == 0);
  const OwnedFile leased(open(program.c_str(), O_RDONLY | O_CLOEXEC));
  REQUIRE(fcntl(leased.get(), F_SETSIG, SIGURG) == 0);  // nobody minds it
  REQUIRE(fcntl(leased.get(), F_SETLEASE, F_WRLCK) == 0);
  const auto process = Subprocess::Start({.command = {program},
                                          .environment = OwnEnvironment(),
                                          .start_limit = std::chrono::milliseconds(100)});
  CHECK(process.status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(Message(process.status()), Catch::Contains(program + " was not started within 100ms"));
  CHECK_FALSE(std::filesystem::exists(ran));
}

}  // namespace
}  // namespace ringmaster
