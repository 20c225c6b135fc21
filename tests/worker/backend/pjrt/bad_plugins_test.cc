// Plugins that are none, are of another version, fail, abort, hang or give nonsense: each is a
// named error, and this process lives on.
#include <catch2/catch.hpp>
#include <utility>

#include "tests/worker/backend/pjrt/small_step.h"
#include "worker/backend/failure.h"

namespace ringmaster {
namespace {

using Catch::Matchers::Contains;
using pjrt::PjrtBackend;
using pjrt::PluginOptions;
using testing::DoubleIsTold;
using testing::DoubleOptions;

Status CreateStatus(const std::string& path) {
  PluginOptions options = DoubleOptions();
  options.path = path;
  return PjrtBackend::Create(options).status();
}

// Of a step where the double is told so.
Status StepStatus(const std::string& told, const PluginOptions& options = DoubleOptions()) {
  const DoubleIsTold double_is_told(told);
  return testing::SmallStep(options).status();
}

}  // namespace

TEST_CASE("Bad plugins: a file that is not there, or no plugin, is named") {
  const Status missing = CreateStatus("/nowhere/libtpu.so");
  CHECK(absl::IsFailedPrecondition(missing));
  CHECK_THAT(Message(missing), Contains("/nowhere/libtpu.so") && Contains("No such file"));

  const Status other = CreateStatus(PJRT_NO_SYMBOL_FILE);
  CHECK(absl::IsFailedPrecondition(other));
  CHECK_THAT(Message(other), Contains("no PJRT plugin") && Contains("GetPjrtApi"));

  PluginOptions options = DoubleOptions();
  options.program = "/nowhere/ringmaster_pjrt_host";
  const Status alone = PjrtBackend::Create(options).status();
  CHECK(absl::IsFailedPrecondition(alone));
  CHECK_THAT(Message(alone), Contains(options.program));
}

TEST_CASE("Bad plugins: one that is too old, or lacks a function, is refused by name") {
  const Status old = StepStatus("minor=56");
  CHECK(absl::IsFailedPrecondition(old));
  CHECK_THAT(Message(old), Contains("0.56") && Contains("0.57"));

  const Status less = CreateStatus(PJRT_SHORT_TABLE_FILE);
  CHECK(absl::IsFailedPrecondition(less));
  CHECK_THAT(Message(less), Contains("lacks PJRT_Client_Compile"));
}

TEST_CASE("Bad plugins: newer ones, strict ones and those that say less work") {
  const auto plain = testing::SmallStep();
  REQUIRE(Message(plain.status()) == "");
  for (const char* told : {"minor=57,table=short", "minor=999", "strict=on,structs=grown",
                           "stats=none", "ids=shuffled,devices=3", "layout=column"}) {
    INFO(told);
    const DoubleIsTold double_is_told(told);
    const auto result = testing::SmallStep();
    REQUIRE(Message(result.status()) == "");
    CHECK(result->Hash() == plain->Hash());
  }
}

TEST_CASE("Bad plugins: an option that nobody knows and a busy device are errors of the start") {
  CHECK_THAT(Message(StepStatus("nonsense=1")), Contains("PJRT_Plugin_Initialize"));
  const Status busy = StepStatus("client=busy");
  CHECK(absl::IsAborted(busy));
  CHECK_THAT(Message(busy), Contains("in use"));
}

TEST_CASE("Bad plugins: what the plugin says is wrong reaches us in its words") {
  CHECK_THAT(Message(StepStatus("compile=error")), Contains("PJRT_Client_Compile: "));
  const Status run = StepStatus("execute=error");
  CHECK_THAT(Message(run), Contains("execut"));
  CHECK(!absl::IsUnavailable(run));  // nothing died, nothing was tried again
}

TEST_CASE("Bad plugins: results of other shapes are refused before they are read") {
  const Status status = StepStatus("results=wrong");
  CHECK(absl::IsInternal(status));
  CHECK_THAT(Message(status), Contains("wrong output shapes: result 0"));
}

TEST_CASE(
    "Bad plugins: an abort in compile is tried once more, then named; the next program runs") {
  PluginOptions options = DoubleOptions();
  std::unique_ptr<PjrtBackend> backend;
  {
    const DoubleIsTold told("compile=abort");
    auto made = PjrtBackend::Create(options);
    REQUIRE(Message(made.status()) == "");
    backend = *std::move(made);
    const Status status = testing::SmallStep(*backend).status();
    CHECK(absl::IsUnavailable(status));
    CHECK_THAT(Message(status), Contains("signal 6"));
  }
  // Processes that start from here on are well.
  CHECK(Message(testing::SmallStep(*backend).status()) == "");
}

TEST_CASE("Bad plugins: one that aborts in every run is given up after as many deaths as allowed") {
  PluginOptions options = DoubleOptions();
  options.max_deaths = 2;
  // A sanitizer makes an exit code of the second one.
  const std::pair<const char*, const char*> cases[] = {
      {"execute=abort", "killed by signal 6"},
      {"execute=segv", "the plugin's process "},
  };
  for (const auto& [told, how] : cases) {
    INFO(told);
    const Status status = StepStatus(told, options);
    CHECK(absl::IsUnavailable(status));
    CHECK_THAT(Message(status), Contains("died 3 times") && Contains(how));
  }
}

TEST_CASE("Bad plugins: one that hangs is ended, and the error says in what") {
  PluginOptions options = DoubleOptions();
  options.max_deaths = 0;
  options.compile_limit = std::chrono::milliseconds(500);
  const Status compile = StepStatus("compile=hang", options);
  CHECK(absl::IsDeadlineExceeded(compile));
  CHECK_THAT(Message(compile), Contains("did not compile within 500ms"));

  options.compile_limit = std::chrono::minutes(2);
  options.run_limit = std::chrono::milliseconds(500);
  const Status run = StepStatus("execute=hang", options);
  CHECK(absl::IsDeadlineExceeded(run));
  CHECK_THAT(Message(run), Contains("did not run a step within 500ms"));
}

TEST_CASE("Bad plugins: memory that a device does not have is RESOURCE_EXHAUSTED") {
  for (const char* told : {"compile=oom", "execute=oom"}) {
    INFO(told);
    const Status status = StepStatus(told);
    CHECK(absl::IsResourceExhausted(status));
    CHECK(FailureOf(status) == v1::FAILURE_CODE_MEMORY);
    CHECK_THAT(Message(status), Contains("hbm") && Contains("the largest tensors: "));
  }
  const auto backend = PjrtBackend::Create(DoubleOptions());
  REQUIRE(Message(backend.status()) == "");
  const auto roomy = testing::BindSmall(**backend);
  REQUIRE(Message(roomy.status()) == "");
  const uint64_t needed = (*roomy)->core().memory_bytes();
  CHECK(needed > 0);
  uint64_t gradients = 0;  // which come through the host's
  for (const graph::Parameter& parameter : testing::SmallProgram().parameters) {
    gradients += static_cast<uint64_t>(graph::Elements(parameter.shape)) * sizeof(float);
  }
  CHECK((*roomy)->core().host_bytes() > gradients);
  CHECK(testing::BindSmall(**backend, {.name = "core0", .memory_bytes = needed}).ok());
  const Status tight =
      testing::BindSmall(**backend, {.name = "core0", .memory_bytes = needed - 1}).status();
  CHECK(absl::IsResourceExhausted(tight));
  CHECK(FailureOf(tight) == v1::FAILURE_CODE_MEMORY);
  CHECK_THAT(Message(tight), Contains("Used ") && Contains(" hbm") && Contains("image f32["));
}

}  // namespace ringmaster
