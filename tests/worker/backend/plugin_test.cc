#include "worker/backend/plugin.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "tests/support/log_lines.h"

namespace ringmaster {
namespace {

using Catch::Matchers::Contains;
using testing::LogLines;

constexpr char kVariable[] = "RINGMASTER_CUDA_LIBRARY";

// The library that was built beside this test as libtest_plugin_NAME.so.
std::string Plugin(const std::string& name) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return (folder / ("libtest_plugin_" + name + ".so")).string();
}

class LibraryVariable {
 public:
  explicit LibraryVariable(const std::string& path) { setenv(kVariable, path.c_str(), 1); }
  ~LibraryVariable() { unsetenv(kVariable); }
};

TEST_CASE("Plugin: a library is looked for beside the program and in ../lib/ringmaster") {
  unsetenv(kVariable);
  const std::vector<std::string> paths = PluginPaths("cuda");
  REQUIRE(paths.size() == 2);
  const std::filesystem::path beside = paths[0];
  CHECK(std::filesystem::exists(beside.parent_path() / "backend_test"));
  CHECK(beside.filename() == "libringmaster_cuda.so");
  CHECK(paths[1] ==
        (beside.parent_path().parent_path() / "lib/ringmaster/libringmaster_cuda.so").string());
}

TEST_CASE("Plugin: RINGMASTER_CUDA_LIBRARY is the only place where it is set") {
  const LibraryVariable variable("/opt/other.so");
  CHECK(PluginPaths("cuda") == std::vector<std::string>{"/opt/other.so"});
}

TEST_CASE("Plugin: where there is no library, every place that was tried is named") {
  const auto backend = LoadBackend({"/nowhere/a.so", "/nowhere/b.so"});
  CHECK(absl::IsNotFound(backend.status()));
  CHECK_THAT(Message(backend.status()), Contains("/nowhere/a.so") && Contains("/nowhere/b.so"));
}

TEST_CASE("Plugin: the first library that is there is the one") {
  CHECK(LoadBackend({"/nowhere/a.so", Plugin("two_devices"), Plugin("no_backend")}).ok());
  CHECK_FALSE(LoadBackend({Plugin("no_backend"), Plugin("two_devices")}).ok());
}

TEST_CASE("Plugin: what cannot be used says why") {
  struct Case {
    std::string path;
    std::string why;
  };
  const std::vector<Case> cases = {
      {"/proc/self/status", "cannot be loaded"},  // a file, but no library
      {Plugin("unresolved"), "ringmaster_defined_nowhere"},
      {Plugin("no_backend"), "is not a backend"},
      {Plugin("other_build"), "another build"},
  };
  for (const Case& one : cases) {
    INFO(one.path);
    const auto backend = LoadBackend({one.path});
    CHECK(absl::IsFailedPrecondition(backend.status()));
    CHECK_THAT(Message(backend.status()), Contains(one.path) && Contains(one.why));
  }
}

TEST_CASE("Plugin: a host without a device is told apart from a library that does not work") {
  const auto backend = LoadBackend({Plugin("no_device")});
  CHECK(absl::IsUnavailable(backend.status()));
  CHECK(Message(backend.status()) == "this host has no abacus");
}

TEST_CASE("Plugin: a loaded backend is used like any other, and its library is in its class") {
  const auto backend = LoadBackend({Plugin("two_devices")});
  REQUIRE(backend.ok());
  CHECK((*backend)->devices() == 2);
  CHECK((*backend)->device_profile().kind() == "abacus");
  CHECK((*backend)->device_profile().memory_per_core() == 80);
  REQUIRE((*backend)->figures().size() == 2);
  CHECK((*backend)->figures()[1].temperature() == 21);
  CHECK((*backend)->augments());
  CHECK(Message((*backend)->MakeInputStage({.device = 1, .slot_bytes = 12}).status()) ==
        "no slot of 12 bytes on device 1");
  CoreOptions options;
  options.name = "core1";
  options.device = 1;
  CHECK(Message((*backend)->MakeCore(options).status()) == "no core core1 on device 1");

  const v1::NumericsClass numerics = (*backend)->numerics_class(3);
  CHECK(numerics.backend() == "abacus");
  CHECK(numerics.threads_per_core() == 3);
  REQUIRE(numerics.libraries().count("libtest_plugin_two_devices.so") == 1);
  CHECK(numerics.libraries().at("libtest_plugin_two_devices.so") == "beads of wood");
}

TEST_CASE("Backend: an unknown kind is refused with the known ones") {
  for (const char* kind : {"abacus", "", "CUDA", "cuda:0"}) {
    const auto backend = MakeBackend(kind);
    CHECK(absl::IsInvalidArgument(backend.status()));
    CHECK_THAT(Message(backend.status()), Contains("auto, cpu, cuda or pjrt"));
  }
}

TEST_CASE("Backend: cuda that cannot be had is an error that says what to try") {
  const LibraryVariable variable("/nowhere/libringmaster_cuda.so");
  const auto backend = MakeBackend("cuda");
  REQUIRE_FALSE(backend.ok());
  const std::string said = Message(backend.status());
  INFO(said);
  if (absl::IsUnavailable(backend.status())) {
    CHECK_THAT(said, Contains("libcuda.so.1") && Contains("nvidia-smi"));
  } else {  // there is a driver
    CHECK_THAT(said, Contains("/nowhere/libringmaster_cuda.so") && Contains(kVariable));
  }
}

TEST_CASE("Backend: auto without a GPU computes on the CPU and says so in one line") {
  const LibraryVariable variable("/nowhere/libringmaster_cuda.so");
  const LogLines lines;
  const auto backend = MakeBackend("auto");
  REQUIRE(backend.ok());
  CHECK((*backend)->device_profile().kind() == "cpu");
  const std::string said = lines.text();
  INFO(said);
  CHECK(std::count(said.begin(), said.end(), '\n') == 1);
  CHECK_THAT(said, Contains("computing on the CPU: "));
}

TEST_CASE("Backend: cpu says nothing") {
  const LogLines lines;
  CHECK(MakeBackend("cpu").ok());
  CHECK(lines.text().empty());
}

#ifdef RINGMASTER_CUDA_LIBRARY_FILE
// Also without a GPU: every symbol is bound, and the library's own code says what is missing.
TEST_CASE("Plugin: the CUDA backend of this build can be loaded") {
  const auto backend = LoadBackend({RINGMASTER_CUDA_LIBRARY_FILE});
  INFO(Message(backend.status()));
  if (backend.ok()) {
    CHECK((*backend)->numerics_class(1).backend() == "cuda");
    CHECK((*backend)->devices() > 0);
  } else {
    CHECK(absl::IsUnavailable(backend.status()));
  }
}
#endif

}  // namespace
}  // namespace ringmaster
