// How steps run on a GPU: replayed or kernel by kernel, one after another, side by side; and how
// programs and shards are refused. That the kernels are right is tested elsewhere.
#include <catch2/catch.hpp>
#include <cmath>
#include <latch>
#include <set>
#include <thread>

#include "tests/support/bound_program.h"
#include "tests/support/program_feeds.h"
#include "tests/worker/backend/cuda/gpu.h"
#include "tests/worker/backend/model_program.h"

namespace ringmaster::cuda {
namespace {

using Catch::Contains;

graph::Program Model(const testing::ModelChoice& choice) {
  auto program = testing::ModelProgram(choice);
  INFO(Message(program.status()));
  REQUIRE(program.ok());
  return *std::move(program);
}

std::unique_ptr<testing::BoundProgram> Bound(Backend& backend, const graph::Program& program) {
  auto bound = testing::BoundProgram::Create(backend, program);
  REQUIRE(Message(bound.status()) == "");
  return *std::move(bound);
}

std::string HashOf(testing::BoundProgram& bound, const graph::Program& program, uint64_t seed) {
  const auto result =
      bound.Run(testing::FeedProgram(program, {.seed = seed}), testing::KeysOf(program));
  REQUIRE(Message(result.status()) == "");
  return result->Hash();
}

// All that `times` runs of one shard gave, on a core of the calling thread.
StatusOr<std::set<std::string>> Hashes(Backend& backend, const graph::Program& program, int times) {
  RING_ASSIGN_OR_RETURN(auto bound, testing::BoundProgram::Create(backend, program));
  std::set<std::string> hashes;
  for (int i = 0; i < times; ++i) {
    RING_ASSIGN_OR_RETURN(const auto result,
                          bound->Run(testing::FeedProgram(program), testing::KeysOf(program)));
    hashes.insert(result.Hash());
  }
  return hashes;
}

struct OwnShard {
  explicit OwnShard(const graph::Program& program)
      : keys(testing::KeysOf(program)),
        images(
            static_cast<size_t>(graph::Elements(program.graph.value(program.fed("image")).shape)),
            0.5F),
        labels(static_cast<size_t>(program.samples), 1) {}
  [[nodiscard]] ShardInput input() const {
    return {.seed = keys.seed,
            .step = keys.step,
            .samples = keys.samples,
            .columns = testing::Columns(images, labels)};
  }

  graph::RandomKeys keys;
  std::vector<float> images;
  std::vector<int32_t> labels;
};

void IgnoreGradient(uint32_t /*parameter*/, size_t /*first*/, std::span<const float> /*piece*/) {}

}  // namespace

TEST_CASE("CUDA runtime: every run of a shard has the same bits, replayed or kernel by kernel") {
  const auto graphs = testing::CudaBackendOrSkip(Replay::kGraph);
  if (graphs == nullptr) return;
  const auto kernels = testing::CudaBackendOrSkip(Replay::kKernels);
  for (const v1::Policy policy :
       {v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16, v1::POLICY_MIXED_FLOAT16}) {
    for (const char* name : {"mlp", "alexnet", "vgg"}) {
      for (const graph::Mode mode : {graph::Mode::kTraining, graph::Mode::kInference}) {
        INFO(name << " " << v1::Policy_Name(policy) << " mode " << static_cast<int>(mode));
        const graph::Program program =
            Model({.name = name, .samples = 5, .policy = policy, .mode = mode});
        const auto replayed = Bound(*graphs, program);
        const auto launched = Bound(*kernels, program);
        // Two shards in turn: what an earlier run left behind would show.
        const std::string one = HashOf(*launched, program, 1);
        const std::string two = HashOf(*launched, program, 2);
        CHECK(one != two);
        CHECK(HashOf(*launched, program, 1) == one);
        for (int i = 0; i < 3; ++i) {
          CHECK(HashOf(*replayed, program, 1) == one);
          CHECK(HashOf(*replayed, program, 2) == two);
        }
      }
    }
  }
}

TEST_CASE("CUDA runtime: pixels, brought ahead or not, give the bits of the host's images") {
  for (const Replay replay : {Replay::kGraph, Replay::kKernels}) {
    const auto backend = testing::CudaBackendOrSkip(replay);
    if (backend == nullptr) return;
    CHECK(backend->augments());
    for (const auto& [mode, policy] : {std::pair(graph::Mode::kTraining, v1::POLICY_FLOAT32),
                                       {graph::Mode::kInference, v1::POLICY_FLOAT32},
                                       {graph::Mode::kTraining, v1::POLICY_MIXED_BFLOAT16},
                                       {graph::Mode::kInference, v1::POLICY_MIXED_FLOAT16}}) {
      INFO(v1::Policy_Name(policy) << " mode " << static_cast<int>(mode));
      const graph::Program program = Model({.samples = 5, .policy = policy, .mode = mode});
      const auto bound = Bound(*backend, program);
      REQUIRE(bound->Refresh(testing::FeedProgram(program)).ok());
      OwnShard shard(program);
      std::vector<v1::Augmentation> operations(3);
      operations[0].mutable_random_crop()->set_padding(4);
      operations[1].mutable_random_flip();
      operations[2].mutable_per_image_standardization();
      const graph::Augmenter augmenter(operations, {40, 24, 3}, {32, 32, 3}, shard.keys.seed);
      auto executable = bound->core().Bind(program, bound->weights(), &augmenter);
      REQUIRE(Message(executable.status()) == "");
      const size_t stored = augmenter.stored().elements();
      const auto stage = backend->MakeInputStage({.slots = 2, .slot_bytes = 5 * stored});
      REQUIRE(Message(stage.status()) == "");
      for (uint64_t run = 0; run < 6; ++run) {
        shard.keys.step = run;
        std::vector<uint8_t> pixels(5 * stored);
        for (size_t i = 0; i < pixels.size(); ++i) {
          pixels[i] = static_cast<uint8_t>((i * 2654435761U + run) >> 13);
        }
        graph::ImageScratch scratch;
        for (size_t row = 0; row < 5; ++row) {
          augmenter.Apply(
              mode == graph::Mode::kTraining ? graph::Use::kTraining : graph::Use::kEvaluation, run,
              shard.keys.samples[row], std::span(pixels).subspan(row * stored, stored), &scratch,
              std::span(shard.images).subspan(row * 3072, 3072));
        }
        const auto expected = bound->Run(shard.input());
        REQUIRE(Message(expected.status()) == "");
        std::shared_ptr<const StagedInput> staged;
        if (run % 2 == 1) {
          auto brought = (*stage)->Bring(pixels);
          REQUIRE(Message(brought.status()) == "");
          staged = *std::move(brought);
        }
        ShardInput input = shard.input();
        input.columns[0] = {};
        input.pixels = pixels;
        input.staged = staged.get();
        testing::ShardResult result;
        result.gradients.resize(program.parameters.size());
        const GradientSink sink{
            .take = [&](uint32_t parameter, size_t, std::span<const float> gradient) {
              result.gradients[parameter].assign(gradient.begin(), gradient.end());
            }};
        REQUIRE(Message((*executable)->Run(input, sink, &result.output)) == "");
        CHECK(result.Hash() == expected->Hash());
      }
    }
  }
}

TEST_CASE("CUDA runtime: the second run replays a graph, where it may") {
  for (const Replay replay : {Replay::kGraph, Replay::kKernels}) {
    const auto backend = testing::CudaBackendOrSkip(replay);
    if (backend == nullptr) return;
    const graph::Program program = Model({.samples = 2});
    const auto bound = Bound(*backend, program);
    REQUIRE(bound->Refresh(testing::FeedProgram(program)).ok());
    auto executable = bound->core().Bind(program, bound->weights(), nullptr);
    REQUIRE(Message(executable.status()) == "");
    const auto* const cuda = dynamic_cast<CudaExecutable*>(executable->get());
    REQUIRE(cuda != nullptr);
    const OwnShard shard(program);
    ShardOutput output;
    for (const bool captured : {false, true, true}) {
      REQUIRE((*executable)->Run(shard.input(), {.take = IgnoreGradient}, &output).ok());
      CHECK(cuda->captured() == (captured && replay == Replay::kGraph));
    }
  }
}

TEST_CASE("CUDA runtime: gradients come in the program's order, finite, at multiples of 64 bytes") {
  const auto backend = testing::CudaBackendOrSkip();
  if (backend == nullptr) return;
  const graph::Program program = Model({.samples = 4, .policy = v1::POLICY_MIXED_BFLOAT16});
  const auto bound = Bound(*backend, program);
  REQUIRE(bound->Refresh(testing::FeedProgram(program)).ok());
  auto executable = bound->core().Bind(program, bound->weights(), nullptr);
  REQUIRE(executable.ok());
  const OwnShard shard(program);
  for (int run = 0; run < 3; ++run) {
    std::vector<uint32_t> order;
    bool sound = true;
    const GradientSink sink{
        .take = [&](uint32_t parameter, size_t, std::span<const float> gradient) {
          order.push_back(parameter);
          sound = sound && reinterpret_cast<uintptr_t>(gradient.data()) % 64 == 0 &&
                  gradient.size() ==
                      static_cast<size_t>(graph::Elements(program.parameters[parameter].shape));
          for (const float x : gradient) sound = sound && std::isfinite(x);
        }};
    ShardOutput output;
    REQUIRE((*executable)->Run(shard.input(), sink, &output).ok());
    CHECK(order == program.gradient_order);
    CHECK(sound);
    CHECK(std::isfinite(output.scalars[0]));
    CHECK(output.scalars[1] <= 4);
    CHECK(output.batch_means.size() == output.batch_variances.size());
    CHECK_FALSE(output.batch_means.empty());
  }
}

TEST_CASE("CUDA runtime: the core takes what the largest program's plan says, and no less free") {
  const auto backend = testing::CudaBackendOrSkip();
  if (backend == nullptr) return;
  const graph::Program small = Model({.samples = 2});
  const graph::Program large = Model({.samples = 64});
  const auto bound = Bound(*backend, small);
  const uint64_t before = bound->core().memory_bytes();
  size_t free_before = 0, free_after = 0, total = 0;
  REQUIRE(cudaMemGetInfo(&free_before, &total) == cudaSuccess);
  const auto larger = bound->core().Bind(large, bound->weights(), nullptr);
  REQUIRE(Message(larger.status()) == "");
  REQUIRE(cudaMemGetInfo(&free_after, &total) == cudaSuccess);
  const auto* const cuda = dynamic_cast<CudaExecutable*>(larger->get());
  REQUIRE(cuda != nullptr);
  const uint64_t planned = cuda->layout().core.bytes;
  CHECK(bound->core().memory_bytes() == planned);
  CHECK(planned > before);
  // The driver hands out whole pages, and plans of libraries take a little beside the arena.
  constexpr uint64_t kSlack = uint64_t{64} << 20;
  CHECK(free_before - free_after <= planned - before + kSlack);
  const auto again = bound->core().Bind(small, bound->weights(), nullptr);
  REQUIRE(again.ok());
  CHECK(bound->core().memory_bytes() == planned);
}

TEST_CASE("CUDA runtime: a larger program bound later moves the memory and changes no bit") {
  const auto backend = testing::CudaBackendOrSkip();
  if (backend == nullptr) return;
  const graph::Program small = Model({.samples = 2});
  const graph::Program large = Model({.samples = 5});
  const auto bound = Bound(*backend, small);
  const std::string before = HashOf(*bound, small, 1);
  CHECK(HashOf(*bound, small, 1) == before);
  const auto larger = bound->core().Bind(large, bound->weights(), nullptr);
  REQUIRE(Message(larger.status()) == "");
  const OwnShard shard(large);
  for (int i = 0; i < 3; ++i) {
    ShardOutput output;
    REQUIRE((*larger)->Run(shard.input(), {.take = IgnoreGradient}, &output).ok());
    CHECK(HashOf(*bound, small, 1) == before);
  }
}

TEST_CASE("CUDA runtime: cores side by side on a GPU give the bits of a core alone") {
  const auto backend = testing::CudaBackendOrSkip();
  if (backend == nullptr) return;
  const graph::Program program = Model({.samples = 4, .policy = v1::POLICY_MIXED_BFLOAT16});
  const graph::Program other = Model({.samples = 7, .policy = v1::POLICY_MIXED_BFLOAT16});
  const auto alone = Hashes(*backend, program, 3);
  REQUIRE(Message(alone.status()) == "");
  REQUIRE(alone->size() == 1);
  StatusOr<std::set<std::string>> together[3] = {alone, alone, alone};
  {
    std::latch start(3);
    std::vector<std::jthread> cores;
    for (int core = 0; core < 3; ++core) {
      cores.emplace_back([&, core] {
        start.arrive_and_wait();
        together[core] = Hashes(*backend, core == 2 ? other : program, 6);
      });
    }
  }
  for (const auto& hashes : together) REQUIRE(Message(hashes.status()) == "");
  CHECK(*together[0] == *alone);
  CHECK(*together[1] == *alone);
  CHECK(together[2]->size() == 1);
  CHECK(*together[2] != *alone);
}

TEST_CASE("CUDA runtime: a program that does not fit the core's memory is refused with its plan") {
  const auto backend = testing::CudaBackendOrSkip();
  if (backend == nullptr) return;
  const graph::Program program = Model({.samples = 64});
  const auto bound = testing::BoundProgram::Create(
      *backend, program, {.name = "core0", .memory_bytes = uint64_t{32} << 20});
  REQUIRE(absl::IsResourceExhausted(bound.status()));
  CHECK_THAT(Message(bound.status()), Catch::StartsWith("Used ") &&
                                          Contains("of 32.0 MiB memory per core") &&
                                          Contains("(64, 32, 32, 96) float32"));
}

TEST_CASE("CUDA runtime: a program for which the GPU has no room is refused with its plan") {
  const auto backend = testing::CudaBackendOrSkip();
  if (backend == nullptr) return;
  // All but enough for libraries, weights and a small program.
  constexpr size_t kLeft = size_t{1} << 30;
  size_t free = 0, total = 0;
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  REQUIRE(free > kLeft);
  Arena others(Place::kDevice);
  REQUIRE(others.Grow(free - kLeft).ok());
  const auto none = testing::BoundProgram::Create(*backend, Model({.samples = 4096}));
  REQUIRE(absl::IsResourceExhausted(none.status()));
  CHECK_THAT(Message(none.status()),
             Catch::StartsWith("Used ") && Contains("(4096, 32, 32, 96) float32"));
  CHECK(Message(Hashes(*backend, Model({.samples = 2}), 2).status()) == "");
}

TEST_CASE("CUDA runtime: shards that are not the program's are refused, and the next one runs") {
  const auto backend = testing::CudaBackendOrSkip();
  if (backend == nullptr) return;
  const graph::Program program = Model({.name = "mlp", .samples = 2});
  const auto bound = Bound(*backend, program);
  OwnShard shard(program);
  CHECK(absl::IsFailedPrecondition(bound->Run(shard.input()).status()));
  REQUIRE(bound->Refresh(testing::FeedProgram(program)).ok());
  shard.labels[1] = 10;
  CHECK(Message(bound->Run(shard.input()).status()) ==
        fmt::format("shard: sample {} has label 10, expected 0 to 9", shard.keys.samples[1]));
  shard.labels[1] = 9;
  CHECK(bound->Run(shard.input()).ok());
  shard.images.pop_back();
  CHECK(absl::IsInvalidArgument(bound->Run(shard.input()).status()));
}

TEST_CASE("CUDA runtime: a core is bound on its own thread, with weights of its backend") {
  const auto backend = testing::CudaBackendOrSkip();
  if (backend == nullptr) return;
  const graph::Program program = Model({.name = "mlp", .samples = 2});
  const auto bound = Bound(*backend, program);
  Status elsewhere;
  {
    std::jthread other(
        [&] { elsewhere = bound->core().Bind(program, bound->weights(), nullptr).status(); });
  }
  CHECK(absl::IsFailedPrecondition(elsewhere));
  const auto cpu = MakeBackend("cpu");
  REQUIRE(cpu.ok());
  const auto weights = (*cpu)->MakeWeights(program);
  REQUIRE(weights.ok());
  CHECK(Message(bound->core().Bind(program, **weights, nullptr).status()) ==
        "the weights are of another backend");
}

}  // namespace ringmaster::cuda
