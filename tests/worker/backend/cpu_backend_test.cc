// What the backend says of itself, and how it refuses.
#include <xmmintrin.h>

#include <catch2/catch.hpp>
#include <thread>

#include "tests/support/bound_program.h"
#include "tests/support/program_feeds.h"
#include "tests/worker/backend/model_program.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/failure.h"

namespace ringmaster {

using Catch::Contains;

TEST_CASE("CPU backend: a program that does not fit the core's memory is refused with its plan") {
  const auto backend = MakeBackend("cpu");
  REQUIRE(backend.ok());
  const auto program = testing::ModelProgram({.samples = 64});
  REQUIRE(program.ok());
  const auto bound = testing::BoundProgram::Create(
      **backend, *program, {.name = "core0", .memory_bytes = uint64_t{32} << 20});
  REQUIRE(absl::IsResourceExhausted(bound.status()));
  CHECK(FailureOf(bound.status()) == v1::FAILURE_CODE_MEMORY);
  const std::string message = Message(bound.status());
  CHECK_THAT(message, Contains("of 32.0 MiB memory per core"));
  CHECK(message.rfind("Used ", 0) == 0);
  CHECK_THAT(message, Contains("(64, 32, 32, 96) float32"));
  CHECK(testing::BoundProgram::Create(**backend, *program,
                                      {.name = "core0", .memory_bytes = uint64_t{1} << 30})
            .ok());
}

TEST_CASE("CPU backend: shards of the wrong size and labels out of range are refused") {
  const auto backend = MakeBackend("cpu");
  const auto program = testing::ModelProgram({.name = "mlp", .samples = 2});
  REQUIRE(program.ok());
  auto bound = testing::BoundProgram::Create(**backend, *program);
  REQUIRE(bound.ok());
  const std::vector<float> images(2 * 32 * 32 * 3, 0.5F);
  const std::vector<int32_t> labels = {3, 10};
  const std::vector<uint64_t> samples = {7, 8};
  CHECK(absl::IsFailedPrecondition(
      (*bound)
          ->Run(
              {.samples = samples, .columns = testing::Columns(images, std::vector<int32_t>{3, 9})})
          .status()));
  REQUIRE((*bound)->Refresh(testing::FeedProgram(*program)).ok());
  const auto bad_label =
      (*bound)->Run({.samples = samples, .columns = testing::Columns(images, labels)}).status();
  CHECK(Message(bad_label) == "shard: sample 8 has label 10, expected 0 to 9");
  const auto bad_size =
      (*bound)->Run({.samples = samples, .columns = testing::Columns({}, labels)}).status();
  CHECK(absl::IsInvalidArgument(bad_size));
}

TEST_CASE("CPU backend: images are the loader's affair") {
  const auto backend = MakeBackend("cpu");
  CHECK_FALSE((*backend)->augments());
  CHECK(*(*backend)->MakeInputStage({.slots = 2, .slot_bytes = 100}) == nullptr);
  const auto program = testing::ModelProgram({.name = "mlp", .samples = 2});
  REQUIRE(program.ok());
  const auto bound = testing::BoundProgram::Create(**backend, *program);
  REQUIRE(bound.ok());
  const graph::Augmenter augmenter({}, {32, 32, 3}, {32, 32, 3}, 1);
  const auto refused = (*bound)->core().Bind(*program, (*bound)->weights(), &augmenter);
  CHECK(refused.status().code() == absl::StatusCode::kUnimplemented);
  CHECK_THAT(Message(refused.status()), Contains("core0: the CPU backend makes no images"));
}

TEST_CASE("CPU backend: the numerics class names what computes") {
  const auto native = cpu::CpuBackend::Create();
  const auto emulated = cpu::CpuBackend::Create(cpu::Bf16Arithmetic::kEmulated);
  REQUIRE(native.ok());
  REQUIRE(emulated.ok());
  const v1::NumericsClass numerics = (*native)->numerics_class(2);
  CHECK(numerics.backend() == "cpu");
  CHECK_THAT(numerics.device_model(), Contains("stepping") && Contains("caches shared by "));
  CHECK(numerics.cache_bytes_size() == 3);
  CHECK(numerics.threads_per_core() == 2);
  CHECK(numerics.compute_id().empty());
  CHECK(numerics.libraries().contains("oneDNN"));
  CHECK(numerics.libraries().contains("glibc"));
  const std::string instructions = (*emulated)->numerics_class(2).instruction_set();
  CHECK_THAT(instructions, Contains("+emulated_bf16"));
  CHECK((*native)->device_profile().alignment() == 64);
}

TEST_CASE("CPU backend: kinds and CPUs that do not exist are refused") {
  CHECK(absl::IsInvalidArgument(MakeBackend("abacus").status()));
  const auto backend = MakeBackend("cpu");
  const auto core = (*backend)->MakeCore({.name = "core0", .cpus = {1000000}});
  CHECK(Message(core.status()) == "core0: there is no CPU 1000000");
}

TEST_CASE("CPU backend: a core that gets fewer threads than it was promised is refused") {
  const auto backend = MakeBackend("cpu");
  std::string message;
  // Inside a group OpenMP gives no second one, as under a limit of the environment.
#pragma omp parallel num_threads(2)
#pragma omp single
  message = Message((*backend)->MakeCore({.name = "core0", .threads = 2}).status());
  CHECK_THAT(message, Contains("core0: expected a group of 2 threads, got 1"));
}

TEST_CASE("CPU backend: the float mode keeps subnormals, before and after a shard") {
  const auto backend = cpu::CpuBackend::Create();
  REQUIRE(backend.ok());
  unsigned before = 0;
  unsigned after = 0;
  Status status;
  {
    std::jthread core([&] {
      _mm_setcsr(_mm_getcsr() | 0x8040);  // FTZ and DAZ, as another library might leave them
      const graph::Program program =
          testing::ModelProgram({.samples = 1, .policy = v1::POLICY_MIXED_BFLOAT16}).value();
      auto bound = testing::BoundProgram::Create(**backend, program);
      status = bound.status();
      if (!status.ok()) return;
      before = _mm_getcsr();
      status = (*bound)->Run(testing::FeedProgram(program), testing::KeysOf(program)).status();
      after = _mm_getcsr();
    });
  }
  REQUIRE(Message(status) == "");
  CHECK((before & 0xffc0) == 0x1f80);  // without the sticky exception flags
  CHECK((after & 0xffc0) == 0x1f80);
}

}  // namespace ringmaster
