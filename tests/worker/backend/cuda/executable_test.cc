// The executable on a runtime that does everything as late as CUDA may, with kernels that hash what
// they read: what is copied where, in which order, by whom it is waited for, and what a capture
// that fails costs.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "common/exact/quantize.h"
#include "common/exact/units.h"
#include "tests/support/model_option.h"
#include "tests/support/optimizers.h"
#include "tests/support/program_feeds.h"
#include "tests/support/small_models.h"
#include "tests/support/zoo_program.h"
#include "tests/worker/backend/cuda/emulation/block_emulator.h"
#include "tests/worker/backend/cuda/hash_program.h"
#include "tests/worker/backend/cuda/late_runtime.h"
#include "tests/worker/backend/model_program.h"
#include "worker/backend/cuda/cuda_executable.h"
#include "worker/backend/cuda/input.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/state/weights.h"
#include "worker/backend/shard_io.h"

namespace ringmaster::cuda {
namespace {

using Bench = testing::HashBench;
using Catch::Contains;
using testing::Expected;
using testing::Master;
using testing::Result;
using testing::Shard;

StatusOr<Result> Run(CudaExecutable& executable, const ShardInput& input) {
  Result result;
  const GradientSink sink{.take = [&](uint32_t parameter, size_t, std::span<const float> gradient) {
    result.gradients[parameter].assign(gradient.begin(), gradient.end());
  }};
  RING_RETURN_IF_ERROR(executable.Run(input, sink, &result.output));
  return result;
}

// The shard's object goes before the result is looked at, as a loader's batch does.
bool RunsRight(CudaExecutable& executable, const graph::Program& program, const Master& master,
               uint64_t seed, const graph::Augmenter* augmenter = nullptr) {
  const auto result = Run(executable, Shard(program, seed, augmenter).input());
  INFO(Message(result.status()));
  CHECK(result.ok());
  return result.ok() && *result == Expected(program, master, Shard(program, seed, augmenter));
}

std::vector<graph::Program> Programs() {
  std::vector<graph::Program> programs;
  for (const graph::Mode mode : {graph::Mode::kTraining, graph::Mode::kInference}) {
    for (const char* name : {"mlp", "alexnet"}) {
      for (const v1::Policy policy : {v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16}) {
        auto program =
            testing::ModelProgram({.name = name, .samples = 1, .policy = policy, .mode = mode});
        REQUIRE(program.ok());
        programs.push_back(*std::move(program));
      }
    }
  }
  return programs;
}

// Small, so that a test may run it often.
graph::Program Small(int64_t samples, graph::Mode mode = graph::Mode::kTraining,
                     graph::Labels labels = graph::Labels::kOwn,
                     v1::Policy policy = v1::POLICY_FLOAT32) {
  v1::Model model = zoo::Model("mlp");
  testing::SetOption("dropout", 0.2, &model);
  testing::SetHidden({5}, &model);
  auto program = zoo::BuildProgram(
      model,
      {.mode = mode, .samples = samples, .data = {3, 3, 1, 3}, .policy = policy, .labels = labels});
  REQUIRE(Message(program.status()) == "");
  return *std::move(program);
}

constexpr uint32_t kShards = 2;
constexpr int kPrecisionBits = 21;

// Weights that a state has filled, and what is in its sums by the host's arithmetic.
struct Summed {
  Summed(CudaWeights& weights, const Master& from, size_t bucket_elements = 0)
      : master(from), units(&from.layout, kPrecisionBits), sums(from.layout.arena_elements()) {
    // Another unit for each tensor.
    std::vector<float> reduced(sums.size());
    for (const exact::TensorRange& tensor : from.layout.tensors()) {
      reduced[tensor.offset()] = std::ldexp(1.0F, static_cast<int>(tensor.tensor) - 3);
    }
    units.Advance(reduced);
    auto made = weights.MakeState({.layout = &from.layout,
                                   .update = {testing::Sgd(0.1, 0, false)},
                                   .shards = kShards,
                                   .precision_bits = kPrecisionBits,
                                   .bucket_elements = bucket_elements});
    REQUIRE(Message(made.status()) == "");
    state = *std::move(made);
    REQUIRE(state->Load(from.parameters, {}, units.exponents()).ok());
  }

  Status Clear(float scale) {
    gradient_scale = scale;
    sums.assign(sums.size(), 0);
    return state->Clear(scale);
  }

  // What `gradient` adds, and the first that is refused.
  exact::FlagKind Add(uint32_t parameter, const std::vector<float>& gradient) {
    exact::FlagKind first = exact::FlagKind::kNone;
    const exact::TensorRange& tensor = master.layout.tensor(parameter);
    for (size_t b = 0; b < tensor.block_count; ++b) {
      const size_t at = b * exact::kBlockElements;
      const size_t count = master.layout.blocks()[tensor.first_block + b].count;
      const auto kind = exact::QuantizeAdd(std::span(gradient).subspan(at, count),
                                           units.unit_exponent(tensor.first_block + b),
                                           gradient_scale, kShards, &sums[tensor.offset() + at]);
      if (first == exact::FlagKind::kNone) first = kind;
    }
    return first;
  }

  [[nodiscard]] bool Same() {
    std::vector<int64_t> found(sums.size());
    CHECK(state->ReadSums({0, master.layout.block_count()}, found).ok());
    return found == sums;
  }

  const Master& master;
  exact::Units units;
  float gradient_scale = 1;
  std::vector<int64_t> sums;
  std::unique_ptr<DeviceState> state;
};

// A run that adds: what it says of each gradient, and what is then in the sums.
bool SumsRight(CudaExecutable& executable, const graph::Program& program, Summed& summed,
               uint64_t seed, SumsTold told = SumsTold::kAtEnd) {
  std::map<uint32_t, exact::FlagKind> kinds;
  std::vector<uint32_t> order;
  const GradientSink sink{.take = [](uint32_t, size_t, std::span<const float>) { FAIL("taken"); },
                          .summed =
                              [&](uint32_t parameter, exact::FlagKind kind) {
                                kinds[parameter] = kind;
                                order.push_back(parameter);
                              },
                          .told = told};
  Result result;
  REQUIRE(Message(executable.Run(Shard(program, seed).input(), sink, &result.output)) == "");
  CHECK(order == program.gradient_order);
  const Result expected = Expected(program, summed.master, Shard(program, seed));
  CHECK(result.output.scalars[0] == expected.output.scalars[0]);
  CHECK(result.output.batch_means == expected.output.batch_means);
  for (const auto& [parameter, gradient] : expected.gradients) {
    CHECK(kinds[parameter] == summed.Add(parameter, gradient));
  }
  return summed.Same();
}

// Freeing memory waits for every stream: all that was brought is there, as early as on a GPU.
void CopyAllAtOnce() {
  Arena memory(Place::kDevice);
  REQUIRE(memory.Grow(1).ok());
}

}  // namespace

TEST_CASE("CUDA executable: every run gives what its shard and the newest weights say") {
  for (const Replay replay : {Replay::kGraph, Replay::kKernels}) {
    for (const graph::Program& program : Programs()) {
      CudaWeights weights(program);
      Bench bench;
      const auto executable = bench.Bind(program, weights, replay);
      for (const uint64_t seed : {1, 2}) {
        const Master master(program, seed);
        REQUIRE(Message(master.Into(weights)) == "");
        CHECK(RunsRight(*executable, program, master, 10));
        CHECK(RunsRight(*executable, program, master, 20));
        CHECK(executable->captured() == (replay == Replay::kGraph));
      }
    }
  }
  CHECK(testing::LiveObjects() == 0);
}

TEST_CASE("CUDA executable: a gradient is handed over before later kernels have run") {
  const graph::Program program = Small(2);
  CudaWeights weights(program);
  Bench bench;
  const auto executable = bench.Bind(program, weights, Replay::kGraph);
  REQUIRE(Master(program, 1).Into(weights).ok());
  for (int run = 0; run < 3; ++run) {
    bench.switches.ran = 0;
    std::vector<uint32_t> order;
    std::vector<size_t> ran;
    const GradientSink sink{.take = [&](uint32_t parameter, size_t, std::span<const float> all) {
      CHECK(reinterpret_cast<uintptr_t>(all.data()) % 64 == 0);
      order.push_back(parameter);
      ran.push_back(bench.switches.ran);
    }};
    ShardOutput output;
    const Shard shard(program, 3);
    REQUIRE(executable->Run(shard.input(), sink, &output).ok());
    CHECK(order == program.gradient_order);
    std::vector<size_t> nodes;
    for (const graph::NodeId node : GradientNodes(program)) {
      nodes.push_back(static_cast<size_t>(node) + 1);
    }
    CHECK(ran == nodes);
    CHECK(bench.switches.ran == program.graph.nodes().size());
  }
}

TEST_CASE("CUDA executable: a graph is launched from the second run on, unless it is refused") {
  const graph::Program program = Small(2);
  CudaWeights weights(program);
  Bench bench;
  const auto executable = bench.Bind(program, weights, Replay::kGraph);
  const Master master(program, 1);
  REQUIRE(master.Into(weights).ok());
  const size_t before = testing::GraphLaunches();
  for (uint64_t run = 0; run < 4; ++run) {
    CHECK(RunsRight(*executable, program, master, run));
    CHECK(testing::GraphLaunches() - before == run);
  }
}

TEST_CASE("CUDA executable: a step that cannot be captured is launched kernel by kernel") {
  const graph::Program program = Small(2);
  for (const graph::Node& node : program.graph.nodes()) {
    CudaWeights weights(program);
    Bench bench;
    bench.switches.allocates = node.name;
    const auto executable = bench.Bind(program, weights, Replay::kGraph);
    const Master master(program, 1);
    REQUIRE(master.Into(weights).ok());
    for (const uint64_t seed : {1, 2, 3, 4}) {
      CHECK(RunsRight(*executable, program, master, seed));
      CHECK_FALSE(executable->captured());
    }
    CHECK(cudaGetLastError() == cudaSuccess);
  }
  CHECK(testing::LiveObjects() == 0);
}

TEST_CASE("CUDA executable: a launch that fails names its node, and the next run is whole") {
  const graph::Program program = Small(2);
  for (const Replay replay : {Replay::kGraph, Replay::kKernels}) {
    CudaWeights weights(program);
    Bench bench;
    const auto executable = bench.Bind(program, weights, replay);
    const Master master(program, 1);
    REQUIRE(master.Into(weights).ok());
    for (const graph::Node& node : program.graph.nodes()) {
      bench.switches.fails = node.name;
      const auto failed = Run(*executable, Shard(program, 1).input());
      CHECK(Message(failed.status()) == node.name + ": no such kernel");
      bench.switches.fails.clear();
    }
    for (const uint64_t seed : {2, 3, 4}) CHECK(RunsRight(*executable, program, master, seed));
  }
}

TEST_CASE("CUDA executable: gradients that are summed on the GPU are the host's integers") {
  for (const Replay replay : {Replay::kGraph, Replay::kKernels}) {
    const graph::Program program = Small(2);
    CudaWeights weights(program);
    Bench bench;
    const auto executable = bench.Bind(program, weights, replay);
    const Master master(program, 1);
    Summed summed(weights, master);
    REQUIRE(weights.RefreshStatistics(master.means, master.variances).ok());
    for (const float scale : {1.0F, 0x1p-3F, 0x1p60F}) {  // at last all is too large
      REQUIRE(summed.Clear(scale).ok());
      for (const uint64_t seed : {1, 2}) {
        CHECK(SumsRight(*executable, program, summed, seed));
        CHECK(SumsRight(*executable, program, summed, seed, SumsTold::kByBucket));
        CHECK(RunsRight(*executable, program, master, seed));  // between, as ever
      }
      for (const Delivery delivery :
           {Delivery::kTaken, Delivery::kSummed, Delivery::kSummedByBucket}) {
        CHECK(executable->captured(delivery) == (replay == Replay::kGraph));
      }
    }
  }
  CHECK(testing::LiveObjects() == 0);
}

TEST_CASE("CUDA executable: a bucket is said to be summed before later kernels have run") {
  const graph::Program program = Small(2);
  const std::vector<graph::NodeId> nodes = GradientNodes(program);
  const std::vector<std::pair<size_t, size_t>> cuts = {{0, 4}, {18, 2}, {1000, 1}};
  for (const auto& [bucket_elements, count] : cuts) {
    CudaWeights weights(program);
    Bench bench;
    const auto executable = bench.Bind(program, weights, Replay::kGraph);
    const Master master(program, 1);
    Summed summed(weights, master, bucket_elements);
    const std::vector<exact::Bucket> buckets = exact::CutBuckets(master.layout, bucket_elements);
    CHECK(buckets.size() == count);
    const auto bucket_of = exact::BucketsOfTensors(master.layout, buckets);
    std::map<uint32_t, size_t> complete;  // by bucket: how many kernels have run then
    for (size_t place = 0; place < nodes.size(); ++place) {
      complete[bucket_of[program.gradient_order[place]]] = static_cast<size_t>(nodes[place]) + 1;
    }
    std::vector<size_t> by_bucket;
    for (const uint32_t p : program.gradient_order) by_bucket.push_back(complete[bucket_of[p]]);
    const std::vector<size_t> at_end(nodes.size(), program.graph.nodes().size());
    REQUIRE(summed.Clear(1).ok());
    for (int run = 0; run < 3; ++run) {
      for (const SumsTold told : {SumsTold::kByBucket, SumsTold::kAtEnd}) {
        bench.switches.ran = 0;
        std::vector<size_t> ran;
        const GradientSink sink{
            .summed = [&](uint32_t, exact::FlagKind) { ran.push_back(bench.switches.ran); },
            .told = told};
        ShardOutput output;
        const Shard shard(program, 3);
        REQUIRE(executable->Run(shard.input(), sink, &output).ok());
        CHECK(ran == (told == SumsTold::kByBucket ? by_bucket : at_end));
      }
    }
  }
}

TEST_CASE("CUDA executable: two cores add to the same sums") {
  const graph::Program program = Small(2);
  CudaWeights weights(program);
  Bench first, second;
  const auto one = first.Bind(program, weights, Replay::kGraph);
  const auto two = second.Bind(program, weights, Replay::kGraph);
  const Master master(program, 1);
  Summed summed(weights, master);
  REQUIRE(summed.Clear(1).ok());
  for (const uint64_t seed : {1, 2, 3}) {
    CHECK(SumsRight(*one, program, summed, seed));
    CHECK(SumsRight(*two, program, summed, seed + 10));
  }
}

TEST_CASE("CUDA executable: without a state, or its statistics, nothing is summed") {
  for (const char* name : {"mlp", "alexnet"}) {
    const auto program = testing::ModelProgram({.name = name, .samples = 1});
    REQUIRE(program.ok());
    CudaWeights weights(*program);
    Bench bench;
    const auto executable = bench.Bind(*program, weights, Replay::kGraph);
    const Master master(*program, 1);
    const Shard shard(*program, 1);
    const GradientSink sink{.summed = [](uint32_t, exact::FlagKind) { FAIL("summed"); }};
    ShardOutput output;
    {
      const Summed summed(weights, master);
      const bool ready = program->normalizations.empty();
      CHECK(weights.On(0).value()->Ready().ok() == ready);
      REQUIRE(weights.RefreshStatistics(master.means, master.variances).ok());
      CHECK(weights.On(0).value()->Ready().ok());
    }
    const Status status = executable->Run(shard.input(), sink, &output);
    CHECK(absl::IsFailedPrecondition(status));
    CHECK_THAT(Message(status), Contains("the weights have no state"));
  }
}

TEST_CASE("CUDA executable: programs share a core's memory, which moves when it grows") {
  const graph::Program small = Small(1);
  const graph::Program large = Small(9);
  CudaWeights weights(small);
  Bench bench;
  const auto first = bench.Bind(small, weights, Replay::kGraph);
  const Master master(small, 1);
  REQUIRE(master.Into(weights).ok());
  for (const uint64_t seed : {1, 2}) CHECK(RunsRight(*first, small, master, seed));
  CHECK(first->captured());
  const auto second = bench.Bind(large, weights, Replay::kGraph);
  CHECK(bench.lane.device.size() == second->layout().core.bytes);
  for (const uint64_t seed : {1, 2, 3}) {
    CHECK(RunsRight(*first, small, master, seed));
    CHECK(RunsRight(*second, large, master, seed));
    CHECK(first->captured() == (seed > 1));
  }
}

TEST_CASE("CUDA executable: a core that lost its memory says so") {
  const graph::Program program = Small(1);
  CudaWeights weights(program);
  Bench bench;
  const auto executable = bench.Bind(program, weights, Replay::kGraph);
  REQUIRE(Master(program, 1).Into(weights).ok());
  CHECK(absl::IsResourceExhausted(bench.lane.device.Grow(size_t{1} << 50)));
  const auto result = Run(*executable, Shard(program, 1).input());
  CHECK(absl::IsFailedPrecondition(result.status()));
  CHECK_THAT(Message(result.status()), Contains("bound later did not fit"));
}

TEST_CASE("CUDA executable: shards and weights that are not the program's are refused") {
  const graph::Program program = Small(2);
  CudaWeights weights(program);
  Bench bench;
  const auto executable = bench.Bind(program, weights, Replay::kGraph);
  Shard shard(program, 1);
  CHECK(absl::IsFailedPrecondition(Run(*executable, shard.input()).status()));
  const Master master(program, 1);
  REQUIRE(master.Into(weights).ok());
  shard.labels[1] = 3;
  CHECK(absl::IsInvalidArgument(Run(*executable, shard.input()).status()));
  CHECK(bench.switches.ran == 0);
  CHECK(absl::IsInvalidArgument(weights.Refresh(master.layout, {}, {}, {})));
  CHECK(RunsRight(*executable, program, master, 1));
}

TEST_CASE("CUDA executable: the share of labels is that of each run") {
  const graph::Program program = Small(3, graph::Mode::kTraining, graph::Labels::kMixed);
  for (const Replay replay : {Replay::kGraph, Replay::kKernels}) {
    CudaWeights weights(program);
    Bench bench;
    const auto executable = bench.Bind(program, weights, replay);
    const Master master(program, 1);
    REQUIRE(master.Into(weights).ok());
    for (const uint64_t seed : {1, 2, 3}) CHECK(RunsRight(*executable, program, master, seed));
  }
  CHECK(testing::LiveObjects() == 0);
}

TEST_CASE("CUDA executable: pixels become the augmenter's images, in every run") {
  std::vector<graph::Program> programs = {Small(3), Small(3, graph::Mode::kInference)};
  for (const v1::Policy policy : {v1::POLICY_MIXED_BFLOAT16, v1::POLICY_MIXED_FLOAT16}) {
    programs.push_back(Small(3, graph::Mode::kTraining, graph::Labels::kOwn, policy));
  }
  for (const Replay replay : {Replay::kGraph, Replay::kKernels}) {
    for (const graph::Program& program : programs) {
      const graph::Augmenter augmenter = testing::AugmenterFor(program);
      CudaWeights weights(program);
      Bench bench;
      const auto executable = bench.Bind(program, weights, replay, &augmenter);
      const Master master(program, 1);
      REQUIRE(master.Into(weights).ok());
      for (const uint64_t seed : {1, 2, 3, 4}) {
        CHECK(RunsRight(*executable, program, master, seed, &augmenter));
        CHECK(executable->captured() == (replay == Replay::kGraph && seed > 1));
      }
    }
  }
  CHECK(testing::LiveObjects() == 0);
}

TEST_CASE(
    "CUDA executable: images go where a program was bound without an augmenter, pixels else") {
  const graph::Program program = Small(2);
  const graph::Augmenter augmenter = testing::AugmenterFor(program);
  CudaWeights weights(program);
  Bench bench;
  const auto with_images = bench.Bind(program, weights, Replay::kGraph);
  const auto with_pixels = bench.Bind(program, weights, Replay::kGraph, &augmenter);
  const Master master(program, 1);
  REQUIRE(master.Into(weights).ok());
  for (const uint64_t seed : {1, 2, 3}) {
    const Shard images(program, seed);
    const Shard pixels(program, seed, &augmenter);
    CHECK(absl::IsInvalidArgument(Run(*with_images, pixels.input()).status()));
    CHECK(absl::IsInvalidArgument(Run(*with_pixels, images.input()).status()));
    CHECK(RunsRight(*with_images, program, master, seed));
    CHECK(RunsRight(*with_pixels, program, master, seed, &augmenter));
  }
}

TEST_CASE("CUDA executable: an augmentation that fails is named, and the next run is whole") {
  for (const v1::Policy policy : {v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16}) {
    const graph::Program program = Small(2, graph::Mode::kTraining, graph::Labels::kOwn, policy);
    const graph::Augmenter augmenter = testing::AugmenterFor(program);
    for (const Replay replay : {Replay::kGraph, Replay::kKernels}) {
      CudaWeights weights(program);
      Bench bench;
      const auto executable = bench.Bind(program, weights, replay, &augmenter);
      const Master master(program, 1);
      REQUIRE(master.Into(weights).ok());
      testing::SetLaunchError(cudaErrorInvalidConfiguration);
      const auto failed = Run(*executable, Shard(program, 1, &augmenter).input());
      testing::SetLaunchError(cudaSuccess);
      const bool cast = policy != v1::POLICY_FLOAT32;  // it is made in its place
      CHECK_THAT(Message(failed.status()),
                 Catch::StartsWith(cast ? "image/bfloat16: augmentation: " : "augmentation: "));
      CHECK(bench.switches.ran == 0);
      for (const uint64_t seed : {2, 3, 4}) {
        CHECK(RunsRight(*executable, program, master, seed, &augmenter));
      }
    }
  }
}

TEST_CASE("CUDA executable: what was brought ahead is waited for, and its slot is used again") {
  for (const Replay replay : {Replay::kGraph, Replay::kKernels}) {
    const graph::Program program = Small(2);
    const graph::Augmenter augmenter = testing::AugmenterFor(program);
    CudaWeights weights(program);
    Bench bench;
    const auto executable = bench.Bind(program, weights, replay, &augmenter);
    const Master master(program, 1);
    REQUIRE(master.Into(weights).ok());
    auto stage = CudaInputStage::Create(
        {.slots = 2, .slot_bytes = Shard(program, 1, &augmenter).pixels.size()});
    REQUIRE(Message(stage.status()) == "");
    // The pixels change as soon as they were brought, as a pageable buffer may.
    const auto bring = [&](uint64_t seed) {
      std::vector<uint8_t> pixels = Shard(program, seed, &augmenter).pixels;
      auto staged = (*stage)->Bring(pixels);
      std::ranges::fill(pixels, 0xcd);
      REQUIRE(Message(staged.status()) == "");
      return *std::move(staged);
    };
    auto next = bring(1);
    for (uint64_t seed = 1; seed < 7; ++seed) {
      const auto staged = std::exchange(next, bring(seed + 1));
      REQUIRE((staged != nullptr && next != nullptr));
      CHECK(bring(99) == nullptr);
      if (seed % 2 == 0) CopyAllAtOnce();
      const Shard shard(program, seed, &augmenter);
      const std::vector<uint8_t> others(shard.pixels.size(), 0xee);
      ShardInput input = shard.input();
      input.pixels = others;  // not looked at: they are there
      input.staged = staged.get();
      const auto result = Run(*executable, input);
      REQUIRE(Message(result.status()) == "");
      CHECK(*result == Expected(program, master, shard));
      // Beside one that nobody had room for.
      CHECK(RunsRight(*executable, program, master, seed + 50, &augmenter));
    }
    CHECK(executable->captured() == (replay == Replay::kGraph));
  }
  CHECK(testing::LiveObjects() == 0);
}

TEST_CASE("CUDA executable: what was brought for another shard or GPU is refused") {
  struct Foreign : StagedInput {};
  const graph::Program program = Small(2);
  const graph::Augmenter augmenter = testing::AugmenterFor(program);
  CudaWeights weights(program);
  Bench bench;
  const auto executable = bench.Bind(program, weights, Replay::kGraph, &augmenter);
  const Master master(program, 1);
  REQUIRE(master.Into(weights).ok());
  const Shard shard(program, 1, &augmenter);
  const auto here = CudaInputStage::Create({.slots = 1, .slot_bytes = shard.pixels.size()});
  const auto there =
      CudaInputStage::Create({.device = 1, .slots = 1, .slot_bytes = shard.pixels.size()});
  REQUIRE((here.ok() && there.ok()));
  const auto smaller = (*here)->Bring(std::span(shard.pixels).first(7));
  const auto elsewhere = (*there)->Bring(shard.pixels);
  CHECK(testing::CurrentDevice() == 1);
  REQUIRE((smaller.ok() && elsewhere.ok()));
  REQUIRE(cudaSetDevice(0) == cudaSuccess);  // as on a core's thread
  const Foreign foreign;
  ShardInput input = shard.input();
  for (const StagedInput* staged :
       {smaller->get(), elsewhere->get(), static_cast<const StagedInput*>(&foreign)}) {
    input.staged = staged;
    const Status status = Run(*executable, input).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(Message(status), Contains("input copied ahead: expected 40 bytes on GPU 0"));
  }
  CHECK(RunsRight(*executable, program, master, 1, &augmenter));
}

TEST_CASE("CUDA weights: a type asked for after a Refresh is filled at once; the order stays") {
  const graph::Program program = Small(1);
  CudaWeights weights(program);
  const Master master(program, 1);
  const auto device = weights.On(0);
  REQUIRE(device.ok());
  CHECK(*weights.On(0) == *device);
  REQUIRE(master.Into(weights).ok());
  REQUIRE((*device)->Provide(graph::DType::kFloat16).ok());
  for (uint32_t p = 0; p < program.parameters.size(); ++p) {
    const float first = master.parameters[master.layout.tensor(p).offset()];
    const void* const copy = (*device)->parameter(p, graph::DType::kFloat16);
    CHECK(std::memcmp(copy, testing::Cast(first, graph::DType::kFloat16).data(), 2) == 0);
    CHECK(reinterpret_cast<uintptr_t>(copy) % kAlignment == 0);
  }
  std::vector<exact::BlockLayout::Tensor> canonical;
  for (uint32_t p = 0; p < program.parameters.size(); ++p) {
    canonical.push_back({p, master.sizes.parameters[p]});
  }
  const auto other = exact::BlockLayout::Create(canonical);
  REQUIRE(other.ok());
  CHECK_THAT(Message(weights.Refresh(*other, master.parameters, master.means, master.variances)),
             Contains("another order"));
}

}  // namespace ringmaster::cuda
