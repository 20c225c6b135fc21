// What the host asks of a GPU, counted on the runtime that is late: in a whole step of a worker
// alone, in a shard of one in a ring, where moving statistics are read, and where images are made
// of pixels.
#include <catch2/catch.hpp>

#include "tests/support/optimizers.h"
#include "tests/support/zoo_program.h"
#include "tests/worker/backend/cuda/hash_program.h"
#include "tests/worker/backend/cuda/late_runtime.h"
#include "tests/worker/backend/cuda/state/host_state.h"
#include "tests/worker/backend/model_program.h"
#include "worker/backend/cuda/cuda_executable.h"
#include "worker/backend/cuda/state/weights.h"

namespace ringmaster::cuda {
namespace {

using testing::CallsSoFar;
using testing::HostCalls;
using testing::Master;
using testing::Shard;

constexpr size_t kNodes = 278, kGradients = 161, kScalars = 2;  // of ResNet-50

graph::Program ResNet50() {
  auto made = zoo::BuildProgram(zoo::Model("resnet50v1.5"), {.policy = v1::POLICY_MIXED_BFLOAT16});
  REQUIRE(Message(made.status()) == "");
  return *std::move(made);
}

template <typename Call>
HostCalls Count(const Call& call) {
  const HostCalls before = CallsSoFar();
  call();
  return CallsSoFar() - before;
}

// A core that trains ResNet-50 with a state, by kernels that do nothing.
class Training {
 public:
  explicit Training(size_t bucket_elements) {
    auto made = weights.MakeState({.layout = &layout,
                                   .update = {testing::Sgd(0.1, 0, false)},
                                   .shards = 1,
                                   .precision_bits = testing::kPrecisionBits,
                                   .bucket_elements = bucket_elements});
    REQUIRE(Message(made.status()) == "");
    state = *std::move(made);
    const exact::Units units(&layout, testing::kPrecisionBits);
    const std::vector<float> parameters(layout.arena_elements());
    REQUIRE(Message(state->Load(parameters, {}, units.exponents())) == "");
    SetStatistics();
    testing::SetLaunchesIdle(true);
  }
  ~Training() { testing::SetLaunchesIdle(false); }

  void SetStatistics() {
    size_t channels = 0;
    for (const graph::Normalization& each : program.normalizations) {
      channels += static_cast<size_t>(each.channels);
    }
    const std::vector<float> statistics(channels, 1);
    REQUIRE(Message(weights.RefreshStatistics(statistics, statistics)) == "");
  }
  void Run(SumsTold told) {
    size_t gradients = 0;
    const GradientSink sink{.summed = [&](uint32_t, exact::FlagKind) { ++gradients; },
                            .told = told};
    ShardOutput output;
    REQUIRE(Message(executable->Run(shard.input(), sink, &output)) == "");
    CHECK(gradients == kGradients);
  }

  const graph::Program program = ResNet50();
  const exact::BlockLayout layout = testing::LayoutOf(program);
  const Shard shard{program, 1};
  CudaWeights weights{program};
  testing::HashBench bench;
  const std::unique_ptr<CudaExecutable> executable = bench.Bind(program, weights, Replay::kGraph);
  std::unique_ptr<DeviceState> state;
};

// A program that gets pixels, or images: launches in its graph beside one a node; its results are
// right, and it has room for images in float32 or not.
struct OfPixels {
  explicit OfPixels(const graph::Program& program, bool pixels = true) {
    const graph::Augmenter augmenter = testing::AugmenterFor(program);
    CudaWeights weights(program);
    testing::HashBench bench;
    const auto executable =
        bench.Bind(program, weights, Replay::kGraph, pixels ? &augmenter : nullptr);
    const Master master(program, 1);
    REQUIRE(Message(master.Into(weights)) == "");
    for (const uint64_t seed : {1, 2, 3}) {  // the second is captured
      const Shard shard(program, seed, pixels ? &augmenter : nullptr);
      testing::Result result;
      const auto take = [&](uint32_t parameter, size_t, std::span<const float> gradient) {
        result.gradients[parameter].assign(gradient.begin(), gradient.end());
      };
      REQUIRE(Message(executable->Run(shard.input(), {.take = take}, &result.output)) == "");
      CHECK(result == testing::Expected(program, master, shard));
      for (const auto& rows : result.output.rows) CHECK(rows == shard.images);
    }
    const auto nodes = static_cast<ptrdiff_t>(program.graph.nodes().size());
    more_launches = static_cast<ptrdiff_t>(testing::NewestGraph().launches) - nodes;
    const graph::MemoryPlan& plan = executable->layout().core.plan;
    has_room = plan.values[static_cast<size_t>(program.fed("image"))].bytes > 0;
    arena_bytes = plan.arena_bytes;
  }

  ptrdiff_t more_launches = 0;
  bool has_room = false;
  size_t arena_bytes = 0;
};

}  // namespace

TEST_CASE("CUDA host calls: so many in a whole step of ResNet-50 of a worker alone") {
  Training job(size_t{1} << 20);
  HostCalls cleared, shard, applied, statistics;
  size_t graphs = 0;
  for (uint64_t update = 1; update <= 2; ++update) {  // the second step is a graph
    cleared = Count([&] { REQUIRE(job.state->Clear(1).ok()); });
    graphs = testing::GraphLaunches();
    shard = Count([&] { job.Run(SumsTold::kAtEnd); });
    applied = Count([&] { REQUIRE(job.state->Apply(SumSource::kOwn, update).ok()); });
    statistics = Count([&] { job.SetStatistics(); });
  }
  CHECK(testing::GraphLaunches() == graphs + 1);
  const testing::GraphParts graph = testing::NewestGraph();
  CHECK(job.program.graph.nodes().size() == kNodes);
  CHECK(graph.launches == kNodes + kGradients);  // which are summed
  CHECK(graph.copies == kScalars + 2);           // statistics of the batch; flags
  CHECK(graph.sets == 1);                        // all flags
  CHECK(graph.told == 0);
  CHECK(graph.joins == 109);                            // of both streams
  CHECK(cleared == HostCalls{.copies = 1, .sets = 1});  // 1/S; sums
  CHECK(shard.launches + shard.sets == 0);
  CHECK(shard.copies == 5);  // seed and step, samples, the loss's seed, image, label
  CHECK(shard.waits == 1);
  // Update, exponents; two each of the digest and of the hashes of parameters and of exponents, as
  // they are read and as they are written. All hashes come back together.
  CHECK(applied == HostCalls{.launches = 2 + 2 + 2 * 4, .copies = 1, .sets = 1, .waits = 1});
  CHECK(statistics == HostCalls{});
}

TEST_CASE("CUDA host calls: a shard of ResNet-50 waits for each bucket in a ring") {
  constexpr size_t kBucketElements = size_t{1} << 20;
  Training job(kBucketElements);
  const size_t buckets = exact::CutBuckets(job.layout, kBucketElements).size();
  CHECK(buckets > 10);
  CHECK(buckets < 25);
  HostCalls shard;
  for (int run = 0; run < 2; ++run) shard = Count([&] { job.Run(SumsTold::kByBucket); });
  const testing::GraphParts graph = testing::NewestGraph();
  CHECK(graph.launches == kNodes + kGradients);
  CHECK(graph.copies == kScalars + 1 + buckets);
  CHECK(graph.told == buckets - 1);  // the last one by the step's end
  CHECK(shard.waits == buckets);
}

TEST_CASE("CUDA host calls: moving statistics are brought once, by the first run that reads them") {
  const auto training = testing::ModelProgram({.samples = 1});
  const auto inference = testing::ModelProgram({.samples = 1, .mode = graph::Mode::kInference});
  REQUIRE((training.ok() && inference.ok()));
  CudaWeights weights(*training);
  testing::HashBench bench, other;
  const auto trains = bench.Bind(*training, weights, Replay::kGraph);
  const auto evaluates = bench.Bind(*inference, weights, Replay::kGraph);
  const auto beside = other.Bind(*inference, weights, Replay::kGraph);
  Master master(*training, 1);
  REQUIRE(Message(master.Into(weights)) == "");
  const auto run = [&](CudaExecutable& executable, const graph::Program& program) {
    return Count([&] {
      testing::Result result;
      const auto take = [&](uint32_t parameter, size_t, std::span<const float> gradient) {
        result.gradients[parameter].assign(gradient.begin(), gradient.end());
      };
      const Shard shard(program, 3);
      REQUIRE(Message(executable.Run(shard.input(), {.take = take}, &result.output)) == "");
      CHECK(result == testing::Expected(program, master, shard));
    });
  };
  HostCalls of_training, of_evaluation;
  for (int i = 0; i < 3; ++i) {  // the third of each is a graph, and all that it reads is there
    of_training = run(*trains, *training);
    of_evaluation = run(*evaluates, *inference);
    run(*beside, *inference);
  }
  for (const uint64_t seed : {2, 3}) {
    const Master newer(*training, seed);
    master.means = newer.means;
    master.variances = newer.variances;
    for (int i = 0; i < 2; ++i) {
      CHECK(Count([&] {
              REQUIRE(weights.RefreshStatistics(master.means, master.variances).ok());
            }) == HostCalls{});
      CHECK(run(*trains, *training) == of_training);
    }
    const HostCalls brought = run(*evaluates, *inference) - of_evaluation;
    CHECK(brought == HostCalls{.copies = 1, .waits = 1});
    CHECK(run(*beside, *inference) == of_evaluation);
    CHECK(run(*evaluates, *inference) == of_evaluation);
  }
}

TEST_CASE("CUDA host calls: 16-bit images are made of pixels in one launch less, without a copy") {
  constexpr ptrdiff_t kAugment = 2;  // numbers are drawn; images
  const auto program_of = [](v1::Policy policy, graph::Mode mode) {
    auto made =
        testing::ModelProgram({.name = "mlp", .samples = 2, .policy = policy, .mode = mode});
    REQUIRE(Message(made.status()) == "");
    return *std::move(made);
  };
  const OfPixels wide(program_of(v1::POLICY_FLOAT32, graph::Mode::kTraining));
  CHECK(wide.more_launches == kAugment);
  CHECK(wide.has_room);
  for (const v1::Policy policy : {v1::POLICY_MIXED_BFLOAT16, v1::POLICY_MIXED_FLOAT16}) {
    INFO(v1::Policy_Name(policy));
    const graph::Program program = program_of(policy, graph::Mode::kTraining);
    const OfPixels made(program);
    CHECK(made.more_launches == kAugment - 1);
    CHECK_FALSE(made.has_room);
    const OfPixels fed(program, false);
    CHECK(fed.more_launches == 0);
    CHECK(fed.has_room);

    // The float32 images are read again, or asked for.
    const graph::ValueId images = program.fed("image");
    graph::Program read = program;
    graph::Node again = read.graph.node(read.graph.value(ImagesOfPixels(program)).producer);
    again.outputs.clear();
    read.graph.AddNode(again, {read.graph.value(ImagesOfPixels(program))});
    graph::Program asked = program_of(policy, graph::Mode::kInference);
    const OfPixels predicts(asked);
    CHECK(predicts.more_launches == 0);  // nothing is drawn, and the cast is none
    asked.rows.push_back({"images", asked.fed("image")});
    for (const auto& [kept, more] : {std::pair(OfPixels(read), kAugment), {OfPixels(asked), 1}}) {
      CHECK(kept.more_launches == more);
      CHECK(kept.has_room);
    }
    const size_t bytes =
        6 * static_cast<size_t>(graph::Elements(program.graph.value(images).shape));
    CHECK(OfPixels(asked).arena_bytes >= bytes);  // of both
    CHECK(predicts.arena_bytes < bytes / 6 * 4);
  }
}

}  // namespace ringmaster::cuda
