// How quick one training shard of the main model is on one thread, policy against policy in one
// run: samples a second of alexnet with 32 samples, best of some rounds, in thread CPU time, which
// other programs on the machine disturb least.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <memory>

#include "tests/support/bound_program.h"
#include "tests/support/program_feeds.h"
#include "tests/worker/backend/model_program.h"

namespace ringmaster {
namespace {

constexpr int64_t kSamples = 32;
constexpr int kRounds = 8;

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A policy's program, bound, and its best time so far.
struct Contender {
  const char* name;
  v1::Policy policy;
  std::unique_ptr<graph::Program> program;
  std::unique_ptr<testing::BoundProgram> bound;
  double seconds = 1e9;
};

Status Bind(Backend* backend, Contender* contender) {
  RING_ASSIGN_OR_RETURN(graph::Program program,
                        testing::ModelProgram({.samples = kSamples, .policy = contender->policy}));
  contender->program = std::make_unique<graph::Program>(std::move(program));
  RING_ASSIGN_OR_RETURN(contender->bound,
                        testing::BoundProgram::Create(*backend, *contender->program));
  return absl::OkStatus();
}

Status RunOnce(Contender* contender) {
  const auto feeds = testing::FeedProgram(*contender->program);
  RING_RETURN_IF_ERROR(contender->bound->Refresh(feeds));
  const std::vector<double>& values = feeds.at(contender->program->fed("image"));
  const std::vector<float> images(values.begin(), values.end());
  const std::vector<int32_t> labels(kSamples, 1);
  const std::vector<uint64_t> samples = testing::KeysOf(*contender->program).samples;
  const double start = CpuSeconds();
  RING_RETURN_IF_ERROR(
      contender->bound->Run({.samples = samples, .columns = testing::Columns(images, labels)})
          .status());
  contender->seconds = std::min(contender->seconds, CpuSeconds() - start);
  return absl::OkStatus();
}

Status Measure() {
  RING_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeBackend("cpu"));
  std::array<Contender, 3> contenders = {{{"float32", v1::POLICY_FLOAT32, {}, {}},
                                          {"mixed_bfloat16", v1::POLICY_MIXED_BFLOAT16, {}, {}},
                                          {"mixed_float16", v1::POLICY_MIXED_FLOAT16, {}, {}}}};
  for (Contender& contender : contenders) RING_RETURN_IF_ERROR(Bind(backend.get(), &contender));
  for (int round = 0; round < kRounds; ++round) {
    for (Contender& contender : contenders) RING_RETURN_IF_ERROR(RunOnce(&contender));
  }
  for (const Contender& contender : contenders) {
    fmt::print("{:14} {:6.1f} samples/s  {:.2f} x float32\n", contender.name,
               kSamples / contender.seconds, contenders[0].seconds / contender.seconds);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace ringmaster

int main() {
  const ringmaster::Status status = ringmaster::Measure();
  if (!status.ok()) fmt::print(stderr, "shard_speed: {}\n", ringmaster::Message(status));
  return status.ok() ? 0 : 1;
}
