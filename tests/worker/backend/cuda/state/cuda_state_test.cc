// A state against the host's arithmetic. On a GPU where there is one, and everywhere on the late
// runtime, with the kernels in the block emulator.
#include "worker/backend/cuda/state/cuda_state.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/support/optimizers.h"
#include "tests/worker/backend/cuda/state/gpu_states.h"
#include "tests/worker/backend/cuda/state/state_under_test.h"

namespace ringmaster::cuda {
namespace {

using Catch::Contains;
using testing::Adam;
using testing::AddShards;
using testing::GpuStates;
using testing::HostState;
using testing::kPrecisionBits;
using testing::kShards;
using testing::LayoutOf;
using testing::Mlp;
using testing::Sgd;

// Adds the shards of a step on both sides, and on the device what a ring makes of their sums.
void AddStep(int step, SumSource source, HostState& model, GpuStates& gpu) {
  AddShards(model, gpu, step == 0 ? 1.0F : 0x1p-5F);
  CHECK(gpu.ReadSums() == model.sums);
  model.totals = model.sums;
  if (source == SumSource::kOwn) return;
  model.EachElement([&](size_t i) { model.totals[i] += static_cast<int64_t>(i) * 12345 - 7; });
  gpu.WriteTotals(model.totals);
}

// Five steps, the third one skipped; `updated` is called behind each of the others.
void CheckSteps(HostState& model, GpuStates& gpu, const auto& updated) {
  uint64_t update = 0;
  for (int step = 0; step < 5; ++step) {
    INFO("step " << step);
    const SumSource source = step % 2 == 1 ? SumSource::kRing : SumSource::kOwn;
    AddStep(step, source, model, gpu);
    const bool skips = step == 2;
    const auto hashes = skips ? gpu.Called().Skip(source) : gpu.Called().Apply(source, ++update);
    gpu.CheckCurrent();
    REQUIRE(Message(hashes.status()) == "");
    CHECK(hashes->totals == model.DigestOf(model.totals));
    CHECK(hashes->read == model.Hash());
    if (skips) {
      model.units.Reset();
    } else {
      model.Apply(model.totals, update);
      updated();
    }
    CHECK(hashes->written == model.Hash());
    gpu.CheckAre(model);
    CHECK(gpu.ReadSums() == model.sums);  // until Clear
  }
}

// An optimizer, and whether gradients as they are drawn here are above its norms.
struct NormCase {
  v1::Optimizer optimizer;
  bool clips = false;
};

NormCase WithGlobalNorm(v1::Optimizer optimizer, double norm, bool clips) {
  optimizer.mutable_clip()->set_global_norm(norm);
  return {optimizer, clips};
}

NormCase WithTensorNorm(v1::Optimizer optimizer, double norm) {
  optimizer.mutable_clip()->set_tensor_norm(norm);
  optimizer.mutable_ema()->set_decay(0.9);
  return {optimizer, true};
}

NormCase WithValue(v1::Optimizer optimizer) {
  optimizer.mutable_clip()->set_value(0.01);
  return {optimizer};
}

}  // namespace

TEST_CASE("CUDA state: several steps give what the host computes, bit for bit") {
  if (!testing::CanTestState()) return;
  const graph::Program program = Mlp();
  const exact::BlockLayout layout = LayoutOf(program);
  for (const v1::Optimizer& options :
       {Sgd(0.1, 0, false), Sgd(0.1, 0.9, false), Sgd(0.1, 0.9, true), Adam()}) {
    INFO(options.ShortDebugString());
    HostState model(layout, options);
    GpuStates gpu(program, layout, options, {testing::LastGpu()});
    REQUIRE(Message(gpu.Load(model)) == "");
    gpu.CheckCurrent();
    gpu.CheckAre(model);
    CheckSteps(model, gpu, [] {});
  }
  CHECK(testing::Leaks() == 0);
}

TEST_CASE("CUDA state: updates with norms give what the host computes, bit for bit") {
  if (!testing::CanTestState()) return;
  const graph::Program program = testing::FrozenMlp();
  const exact::BlockLayout layout = LayoutOf(program);
  std::vector<float> frozen(exact::kBlockElements);
  for (size_t i = 0; i < 21; ++i) frozen[i] = static_cast<float>(i) / 7;
  for (const NormCase& each :
       {WithGlobalNorm(Adam(), 0.5, true), WithGlobalNorm(Sgd(0.1, 0.9, true), 1e9, false),
        WithTensorNorm(testing::RmsProp(0.5, true), 0.5), NormCase{testing::Lars()},
        WithValue(testing::Lars()), WithTensorNorm(testing::Lars(), 0.5), NormCase{testing::Lamb()},
        WithGlobalNorm(testing::Lamb(), 0.5, true)}) {
    INFO(each.optimizer.ShortDebugString());
    HostState model(layout, each.optimizer);
    GpuStates gpu(program, layout, each.optimizer, {testing::LastGpu()});
    REQUIRE(Message(gpu.Load(model)) == "");
    REQUIRE(Message(gpu.weights().LoadFrozen(frozen)) == "");
    CheckSteps(model, gpu, [&] {
      const auto clipped = [](const graph::NormFactors& of) { return of.gradient < 1; };
      const auto adapted = [](const graph::NormFactors& of) { return of.rate != 1; };
      CHECK(std::ranges::any_of(model.factors, clipped) == each.clips);
      CHECK(std::ranges::any_of(model.factors, adapted) ==
            model.optimizer->norms().needs_weights());
    });
    gpu.CheckFrozen(frozen);
  }
  CHECK(testing::Leaks() == 0);
}

TEST_CASE("CUDA state: a skipped step changes units alone, and has a digest") {
  if (!testing::CanTestState()) return;
  const graph::Program program = Mlp();
  const exact::BlockLayout layout = LayoutOf(program);
  HostState model(layout, Adam());
  GpuStates gpu(program, layout, Adam(), {0});
  REQUIRE(gpu.Load(model).ok());
  for (const SumSource source : {SumSource::kOwn, SumSource::kRing}) {
    AddShards(model, gpu, 1);
    model.totals = model.sums;
    if (source == SumSource::kRing) {
      model.totals[3] += 5;
      gpu.WriteTotals(model.totals);
    }
    const auto hashes = gpu.Called().Skip(source);
    gpu.CheckCurrent();
    REQUIRE(Message(hashes.status()) == "");
    CHECK(hashes->totals == model.DigestOf(model.totals));
    model.units.Reset();
    gpu.CheckAre(model);
  }
}

TEST_CASE("CUDA state: whether an update reads, and whether it writes, a value that is no number") {
  if (!testing::CanTestState()) return;
  const graph::Program program = Mlp();
  const exact::BlockLayout layout = LayoutOf(program);
  const v1::Optimizer too_fast = Sgd(1e300, 0, false);  // a step of 0 times infinity
  HostState model(layout, too_fast);
  GpuStates gpu(program, layout, too_fast, {0});
  for (const bool finite : {true, false, true}) {
    model.parameters[0] = finite ? 1 : INFINITY;
    REQUIRE(gpu.Load(model).ok());
    REQUIRE(gpu.Called().Clear(1).ok());
    const auto hashes = gpu.Called().Apply(SumSource::kOwn, 1);
    REQUIRE(hashes.ok());
    CHECK(hashes->read.finite == finite);
    CHECK_FALSE(hashes->written.finite);
  }
}

TEST_CASE("CUDA state: Load replaces everything, and sums are zero after it as after Clear") {
  if (!testing::CanTestState()) return;
  const graph::Program program = Mlp();
  const exact::BlockLayout layout = LayoutOf(program);
  const std::vector<int64_t> zeros(layout.arena_elements());
  HostState model(layout, Adam());
  GpuStates gpu(program, layout, Adam(), {0});
  REQUIRE(gpu.Load(model).ok());
  CHECK(gpu.ReadSums() == zeros);
  AddShards(model, gpu, 1);
  REQUIRE(gpu.Called().Apply(SumSource::kOwn, 1).ok());
  CHECK(gpu.ReadSums() != zeros);
  REQUIRE(gpu.Load(model).ok());
  gpu.CheckAre(model);
  CHECK(gpu.ReadSums() == zeros);
  AddShards(model, gpu, 1);
  REQUIRE(gpu.Called().Clear(1).ok());
  CHECK(gpu.ReadSums() == zeros);
}

TEST_CASE("CUDA state: with Load the weights are ready, where there are no statistics") {
  if (!testing::CanTestState()) return;
  const graph::Program program = Mlp();
  const exact::BlockLayout layout = LayoutOf(program);
  HostState host(layout, Adam());
  GpuStates gpu(program, layout, Adam(), {0});
  CHECK(absl::IsFailedPrecondition(gpu.device(0).Ready()));
  REQUIRE(gpu.Load(host).ok());
  CHECK(gpu.device(0).Ready().ok());
  CHECK(gpu.weights().RefreshStatistics({}, {}).ok());
  CHECK(absl::IsInvalidArgument(gpu.weights().RefreshStatistics(std::vector<float>(1), {})));
}

TEST_CASE("CUDA state: what is not the model's, or comes too early, is refused") {
  if (!testing::CanTestState()) return;
  const graph::Program program = Mlp();
  const exact::BlockLayout layout = LayoutOf(program);
  HostState model(layout, Adam());
  GpuStates gpu(program, layout, Adam(), {0});
  CHECK_THAT(Message(gpu.Called().Clear(1)), Contains("Load comes first"));
  CHECK(absl::IsFailedPrecondition(gpu.Called().Apply(SumSource::kOwn, 1).status()));
  CHECK(absl::IsFailedPrecondition(gpu.Called().Skip(SumSource::kOwn).status()));
  const std::vector<std::span<const float>> slots(model.slots.begin(), model.slots.end());
  const auto exponents = model.units.exponents();
  const std::span<const float> parameters = model.parameters;
  CHECK(absl::IsInvalidArgument(gpu.Called().Load(parameters.subspan(1), slots, exponents)));
  CHECK(
      absl::IsInvalidArgument(gpu.Called().Load(parameters, std::span(slots).first(1), exponents)));
  CHECK(absl::IsInvalidArgument(gpu.Called().Load(parameters, slots, exponents.subspan(1))));
  const std::vector<int16_t> wrong(exponents.size(), 128);
  CHECK_THAT(Message(gpu.Called().Load(parameters, slots, wrong)), Contains("128 at block 0"));
  REQUIRE(gpu.Load(model).ok());
  for (const float scale : {0.0F, 3.0F, -1.0F, 0x1p65F, INFINITY}) {
    CHECK(absl::IsInvalidArgument(gpu.Called().Clear(scale)));
  }
  std::vector<int64_t> sums(layout.arena_elements());
  const size_t blocks = layout.block_count();
  for (const exact::Bucket& bucket : {exact::Bucket{0, blocks + 1}, exact::Bucket{1, blocks},
                                      exact::Bucket{0, 1}, exact::Bucket{blocks, 0}}) {
    CHECK(absl::IsInvalidArgument(gpu.Called().ReadSums(bucket, sums)));
    CHECK(absl::IsInvalidArgument(gpu.Called().WriteTotals(bucket, sums)));
  }
}

TEST_CASE("CUDA weights: a state is made where one GPU has them, and is known to them") {
  if (!testing::CanTestState()) return;
  const graph::Program program = Mlp();
  const exact::BlockLayout layout = LayoutOf(program);
  DeviceStateOptions options{
      .layout = &layout, .update = {Adam()}, .shards = kShards, .precision_bits = kPrecisionBits};
  CudaWeights weights(program);
  CHECK(*weights.MakeState(options) == nullptr);
  DeviceWeights* const device = *weights.On(0);
  {
    const auto state = weights.MakeState(options);
    REQUIRE(state.ok());
    REQUIRE(device->sums() != nullptr);
    CHECK(device->sums()->shards == kShards);
  }
  CHECK(device->sums() == nullptr);
  options.precision_bits = 7;
  CHECK(absl::IsInvalidArgument(weights.MakeState(options).status()));
  options.precision_bits = kPrecisionBits;
  options.update.optimizer.Clear();
  CHECK(absl::IsInvalidArgument(weights.MakeState(options).status()));
  options.update.optimizer = Adam();
  auto other = exact::BlockLayout::Create(std::vector<exact::BlockLayout::Tensor>{{0, 5}});
  options.layout = &*other;
  CHECK(absl::IsInvalidArgument(weights.MakeState(options).status()));
}

}  // namespace ringmaster::cuda
