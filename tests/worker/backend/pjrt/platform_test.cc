// What the backend makes of the name that a plugin gives its platform.
#include <catch2/catch.hpp>

#include "common/graph/passes/passes.h"
#include "tests/worker/backend/pjrt/small_step.h"
#include "worker/backend/pjrt/tpus.h"

namespace ringmaster {
namespace {

using Catch::Matchers::Contains;
using pjrt::PjrtBackend;
using testing::DoubleIsTold;

StatusOr<std::unique_ptr<PjrtBackend>> Started(const std::string& told,
                                               double memory_fraction = 0) {
  const DoubleIsTold double_is_told(told);
  pjrt::PluginOptions options = testing::DoubleOptions();
  options.memory_fraction = memory_fraction;
  return PjrtBackend::Create(options);
}

}  // namespace

TEST_CASE("Platform: one whose bits nobody knows how to repeat is refused by name") {
  for (const char* name : {"rocm", "sycl", "METAL"}) {
    const auto backend = Started(std::string("platform=") + name);
    CHECK(absl::IsFailedPrecondition(backend.status()));
    CHECK_THAT(Message(backend.status()),
               Contains(std::string("the plugin's platform is ") + name));
    CHECK_THAT(Message(backend.status()), Contains("tpu, cuda and cpu alone"));
  }
  for (const char* name : {"tpu", "cuda", "cpu", "double"}) {
    CHECK(Message(Started(std::string("platform=") + name).status()) == "");
  }
}

TEST_CASE("Platform: a part of the memory is asked of those alone that give one") {
  CHECK(Message(Started("platform=cuda", 0.5).status()) == "");
  const auto tpu = Started("platform=tpu", 0.5);
  CHECK(absl::IsInvalidArgument(tpu.status()));
  CHECK_THAT(Message(tpu.status()), Contains("--memory-fraction") && Contains("platform tpu"));
}

TEST_CASE("Platform: one process has a TPU, or a GPU") {
  for (const auto& [name, exclusive] :
       {std::pair("double", false), {"cpu", false}, {"cuda", true}, {"tpu", true}}) {
    INFO(name);
    const auto backend = Started(std::string("platform=") + name);
    REQUIRE(Message(backend.status()) == "");
    CHECK((*backend)->exclusive() == exclusive);
  }
}

TEST_CASE("Platform: on GPUs 16-bit convolutions have sums of 16 bits, which rounds once more") {
  graph::Program program = testing::SmallProgram();
  REQUIRE(Message(graph::ApplyPolicy(&program, graph::DType::kBFloat16)) == "");
  const auto hash_on = [&](const std::string& told) {
    const auto backend = Started(told);
    REQUIRE(Message(backend.status()) == "");
    const auto bound = testing::BoundProgram::Create(**backend, program, {.name = "core0"});
    REQUIRE(Message(bound.status()) == "");
    const auto feeds = testing::FeedProgram(program, {.classes = testing::kSmallClasses});
    const auto result = (*bound)->Run(feeds, testing::KeysOf(program));
    REQUIRE(Message(result.status()) == "");
    return result->Hash();
  };
  const std::string wide = hash_on("platform=double");
  CHECK(hash_on("platform=tpu") == wide);
  CHECK(hash_on("platform=cuda") != wide);
}

TEST_CASE("Platform: a TPU's plan needs no compiler, and another device's says what to do") {
  const graph::Program program = testing::SmallProgram();
  const auto plan_on = [&](const std::string& told) -> StatusOr<CoreLayout> {
    RING_ASSIGN_OR_RETURN(const auto backend, Started(told));
    RING_ASSIGN_OR_RETURN(const auto weights, backend->MakeWeights(program));
    RING_ASSIGN_OR_RETURN(const auto core, backend->MakeCore({.name = "core0"}));
    return core->Plan(program, *weights);
  };
  for (const char* kind : {"TPU v3", "TPU v5 lite", "TPU v6e"}) {
    INFO(kind);
    const auto plan = plan_on(std::string("platform=tpu,kind=") + kind);
    REQUIRE(Message(plan.status()) == "");
    const auto planned = pjrt::PlanOnTpu(program);
    REQUIRE(Message(planned.status()) == "");
    CHECK(plan->bytes == planned->bytes);
  }
  // What crosses is known, too.
  const auto backend = Started("platform=tpu,kind=TPU v3");
  REQUIRE(Message(backend.status()) == "");
  const auto bound = testing::BoundProgram::Create(**backend, program, {.name = "core0"});
  REQUIRE(Message(bound.status()) == "");
  CHECK((*bound)->core().host_bytes() == pjrt::PlanOnTpu(program)->host_bytes);
  const auto other = plan_on("platform=cuda,kind=H100");
  CHECK(absl::IsUnimplemented(other.status()));
  CHECK_THAT(Message(other.status()),
             Contains("of kind H100") && Contains("--profile: tpu-v2-8, tpu-v3-8"));
}

TEST_CASE("Platform: a TPU whose plugin is silent about its memory has what its model has") {
  const auto memory_of = [](const std::string& told) {
    const auto backend = Started(told);
    REQUIRE(Message(backend.status()) == "");
    return (*backend)->device_profile().memory_per_core();
  };
  CHECK(memory_of("platform=tpu,kind=TPU v5,stats=none") == uint64_t{95} << 30);
  CHECK(memory_of("platform=tpu,kind=TPU v5,memory=8GiB") == uint64_t{8} << 30);
  CHECK(memory_of("stats=none") == 0);
}

}  // namespace ringmaster
