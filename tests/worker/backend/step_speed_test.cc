// How quick a training shard of the main model is: `cpu_backend_test [speed]`; not run by default.
#include <catch2/catch.hpp>
#include <cstdio>
#include <ctime>

#include "tests/support/bound_program.h"
#include "tests/support/program_feeds.h"
#include "tests/worker/backend/model_program.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace ringmaster {
namespace {

// CPU time of this thread, which other programs on the machine disturb least.
double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double SamplesPerSecond(v1::Policy policy) {
  constexpr int64_t kSamples = 32;
  const auto program = testing::ModelProgram({.samples = kSamples, .policy = policy});
  const auto backend = MakeBackend("cpu");
  auto bound = testing::BoundProgram::Create(**backend, *program);
  const auto feeds = testing::FeedProgram(*program);
  double best = 1e9;
  for (int i = 0; i < 8; ++i) {
    REQUIRE((*bound)->Refresh(feeds).ok());
    const std::vector<double>& image_values = feeds.at(program->images);
    const std::vector<float> images(image_values.begin(), image_values.end());
    const std::vector<int32_t> labels(kSamples, 1);
    const std::vector<uint64_t> samples = testing::KeysOf(*program).samples;
    const double start = CpuSeconds();
    REQUIRE((*bound)->Run({.samples = samples, .images = images, .labels = labels}).ok());
    best = std::min(best, CpuSeconds() - start);
  }
  return kSamples / best;
}

}  // namespace

TEST_CASE("Speed: training shards of alexnet, one thread", "[.][speed]") {
  std::printf("float32        %.1f samples/s\n", SamplesPerSecond(v1::POLICY_FLOAT32));
  std::printf("mixed_bfloat16 %.1f samples/s\n", SamplesPerSecond(v1::POLICY_MIXED_BFLOAT16));
  std::printf("mixed_float16  %.1f samples/s\n", SamplesPerSecond(v1::POLICY_MIXED_FLOAT16));
}

}  // namespace ringmaster
