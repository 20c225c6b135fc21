// What becomes of a process whose GPU hangs, or whose context an error has spoilt: seen from
// another one, because it is for the life of the process.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>

#include "tests/support/optimizers.h"
#include "tests/worker/backend/cuda/late_runtime.h"
#include "tests/worker/backend/cuda/state/gpu_states.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/device/runtime.h"

namespace ringmaster::cuda {
namespace {

using std::chrono::milliseconds;

// The exit code of a child that does `work`.
int ExitOf(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int AwaitEvent(testing::Ready ready) {
  SetAwaitLimit(milliseconds(30));
  const auto stream = MakeStream();
  const auto event = MakeEvent();
  if (!stream.ok() || !event.ok()) return 1;
  testing::SetEventsReady(ready);
  return WaitFor(stream->get(), event->get(), "a step").ok() ? 0 : 2;
}

}  // namespace

TEST_CASE("CUDA lost: a GPU that hangs ends the process, within the limit") {
  CHECK(kLostExitCode == 70);  // as docs/errors.md says, also of a process that ends with its job
  CHECK(ExitOf([] { return AwaitEvent(testing::Ready::kNever); }) == kLostExitCode);
  CHECK(ExitOf([] { return AwaitEvent(testing::Ready::kSecondTime); }) == 0);
}

TEST_CASE("CUDA lost: an error of the device ends the process, one of a kernel is remembered") {
  CHECK(ExitOf([] { return FromCuda(cudaErrorECCUncorrectable, "a step").ok() ? 0 : 1; }) ==
        kLostExitCode);
  CHECK(ExitOf([] {
          const bool before = Lost().ok();
          const bool failed = !FromCuda(cudaErrorIllegalAddress, "a step").ok();
          (void)FromCuda(cudaErrorLaunchFailure, "the next");
          return before && failed && Message(Lost()).starts_with("a step: ") ? 3 : 1;
        }) == 3);
}

TEST_CASE("CUDA lost: what goes wrong behind the start of a step is met by whoever waits next") {
  const graph::Program program = testing::Mlp();
  const exact::BlockLayout layout = testing::LayoutOf(program);
  const testing::HostState host(layout, testing::Adam());
  testing::GpuStates gpu(program, layout, testing::Adam(), {0});
  REQUIRE(gpu.Load(host).ok());
  const std::function<Status()> update = [&] {
    return gpu.Called().Apply(SumSource::kOwn, 1).status();
  };
  const std::function<Status()> read = [&] {
    std::vector<int64_t> sums(layout.arena_elements());
    return gpu.Called().ReadSums({0, layout.block_count()}, sums);
  };
  for (const auto& next : {update, read}) {
    const auto exit_of = [&](cudaError_t error) {
      return ExitOf([&] {
        testing::SetWaitError(error);
        if (!gpu.Called().Clear(1).ok()) return 1;
        return next().ok() || Lost().ok() ? 2 : 3;
      });
    };
    CHECK(exit_of(cudaErrorECCUncorrectable) == kLostExitCode);
    CHECK(exit_of(cudaErrorIllegalAddress) == 3);
  }
}

TEST_CASE("CUDA lost: what a call was given wrong leaves the process as it was") {
  for (const cudaError_t error : {cudaErrorInvalidValue, cudaErrorMemoryAllocation,
                                  cudaErrorNotSupported, cudaErrorNotReady}) {
    CHECK(DamageOf(error) == Damage::kNone);
  }
  CHECK_FALSE(FromCuda(cudaErrorInvalidValue, "a step").ok());
  CHECK(Lost().ok());
}

}  // namespace ringmaster::cuda
