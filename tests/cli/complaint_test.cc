#include "cli/complaint.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <vector>

#include "tests/cli/run_ringctl.h"

namespace ringmaster::cli {
namespace {

// Nothing listens on port 1 of this machine.
int Exit(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "ringctl");
  return RunRingctl(arguments);
}

TEST_CASE("ExitCode: of a job that ended") {
  CHECK(ExitCodeOf(v1::JOB_STATE_SUCCEEDED) == ExitCode::kOk);
  CHECK(ExitCodeOf(v1::JOB_STATE_FAILED) == ExitCode::kJobFailed);
  CHECK(ExitCodeOf(v1::JOB_STATE_CANCELLED) == ExitCode::kJobCancelled);
  CHECK(static_cast<int>(ExitCode::kJobFailed) == 3);
  CHECK(static_cast<int>(ExitCode::kJobCancelled) == 4);
  CHECK(static_cast<int>(ExitCode::kTimedOut) == 124);
}

TEST_CASE("ExitCode: of an error") {
  CHECK(ExitCodeOf(InvalidArgument("x")) == ExitCode::kUsage);
  CHECK(ExitCodeOf(Error(absl::StatusCode::kUnavailable, "x")) == ExitCode::kUnreachable);
  CHECK(ExitCodeOf(Error(absl::StatusCode::kNotFound, "x")) == ExitCode::kOther);
}

TEST_CASE("Ringctl: a wrong command line ends with 2") {
  CHECK(Exit({}) == 2);
  CHECK(Exit({"stauts"}) == 2);
  CHECK(Exit({"status"}) == 2);
  CHECK(Exit({"watch", "a", "b"}) == 2);
  CHECK(Exit({"ps", "-o", "yaml"}) == 2);
  CHECK(Exit({"ps", "--coordinator", "nowhere"}) == 2);
  CHECK(Exit({"wait", "job", "--timeout", "soon"}) == 2);
  CHECK(Exit({"submit", "/no/such/file.yaml"}) == 2);
  CHECK(Exit({"checkpoint"}) == 2);
  CHECK(Exit({"dataset", "make", "imagenet", "x"}) == 2);
  CHECK(Exit({"up", "--coordinator", "127.0.0.1:1"}) == 2);  // it asks none
  CHECK(Exit({"--coordinator", "127.0.0.1:1", "up"}) == 2);
  for (const char* command : {"evaluate", "predict"}) {
    CHECK(Exit({command, "job", "--step", "-1"}) == 2);
  }
  CHECK(Exit({"checkpoint", "verify", "job", "--step", "-1"}) == 2);
}

TEST_CASE("Ringctl: what cannot be written to stdout ends with 1") {
  const TemporaryFolder folder;
  const int full = open("/dev/full", O_WRONLY),
            said = creat((folder.path() + "/err").c_str(), 0600);
  int code = 0;
  {
    const Redirect redirect_out(stdout, full), redirect_err(stderr, said);
    std::vector<std::string> words = {"ringctl", "--version"};
    code = RunRingctl(words);
    std::clearerr(stdout);
  }
  close(full);
  close(said);
  CHECK(code == 1);
  CHECK_THAT(ReadWhole(folder.path() + "/err"),
             Catch::Contains("cannot write all of it to stdout"));
}

TEST_CASE("Ringctl: help and version end with 0") {
  CHECK(Exit({"--version"}) == 0);
  CHECK(Exit({"--help"}) == 0);
  CHECK(Exit({"submit", "--help"}) == 0);
  CHECK(Exit({"checkpoint", "get", "--help"}) == 0);
}

TEST_CASE("Ringctl: a coordinator that does not answer ends with 5, wherever it is named") {
  CHECK(Exit({"ps", "--coordinator", "127.0.0.1:1"}) == 5);
  CHECK(Exit({"--coordinator", "127.0.0.1:1", "ps"}) == 5);
  CHECK(Exit({"wait", "job", "--timeout", "1h", "--coordinator", "127.0.0.1:1"}) == 5);
  setenv("RINGMASTER_COORDINATOR", "127.0.0.1:1", 1);
  CHECK(Exit({"workers"}) == 5);
  CHECK(Exit({"workers", "--coordinator", "nowhere"}) == 2);
  unsetenv("RINGMASTER_COORDINATOR");
}

}  // namespace
}  // namespace ringmaster::cli
