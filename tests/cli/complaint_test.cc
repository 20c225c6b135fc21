#include "cli/complaint.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <initializer_list>
#include <vector>

#include "cli/ringctl.h"

namespace ringmaster::cli {
namespace {

// Nothing listens on port 1 of this machine.
int RunRingctl(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "ringctl");
  return Run(static_cast<int>(arguments.size()), arguments.data());
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
  CHECK(RunRingctl({}) == 2);
  CHECK(RunRingctl({"stauts"}) == 2);
  CHECK(RunRingctl({"status"}) == 2);
  CHECK(RunRingctl({"watch", "a", "b"}) == 2);
  CHECK(RunRingctl({"ps", "-o", "yaml"}) == 2);
  CHECK(RunRingctl({"ps", "--coordinator", "nowhere"}) == 2);
  CHECK(RunRingctl({"wait", "job", "--timeout", "soon"}) == 2);
  CHECK(RunRingctl({"submit", "/no/such/file.yaml"}) == 2);
  CHECK(RunRingctl({"checkpoint"}) == 2);
  CHECK(RunRingctl({"dataset", "make", "imagenet", "x"}) == 2);
}

TEST_CASE("Ringctl: help and version end with 0") {
  CHECK(RunRingctl({"--version"}) == 0);
  CHECK(RunRingctl({"--help"}) == 0);
  CHECK(RunRingctl({"submit", "--help"}) == 0);
  CHECK(RunRingctl({"checkpoint", "get", "--help"}) == 0);
}

TEST_CASE("Ringctl: a coordinator that does not answer ends with 5, wherever it is named") {
  CHECK(RunRingctl({"ps", "--coordinator", "127.0.0.1:1"}) == 5);
  CHECK(RunRingctl({"--coordinator", "127.0.0.1:1", "ps"}) == 5);
  CHECK(RunRingctl({"wait", "job", "--timeout", "1h", "--coordinator", "127.0.0.1:1"}) == 5);
  setenv("RINGMASTER_COORDINATOR", "127.0.0.1:1", 1);
  CHECK(RunRingctl({"workers"}) == 5);
  CHECK(RunRingctl({"workers", "--coordinator", "nowhere"}) == 2);
  unsetenv("RINGMASTER_COORDINATOR");
}

}  // namespace
}  // namespace ringmaster::cli
