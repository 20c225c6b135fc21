// One job of workers whose state is the host's and of workers whose state the CUDA backend's
// kernels keep, in one ring: step loop, reduction, update and check of the state are the real ones
// on both sides.
#include <fmt/format.h>

#include <bit>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_backend.h"
#include "tests/support/model_option.h"
#include "tests/support/optimizers.h"
#include "tests/worker/backend/cuda/late_runtime.h"
#include "tests/worker/backend/cuda/state/gpu_state_backend.h"
#include "tests/worker/train/regroup_case.h"

namespace ringmaster::worker {
namespace {

using Catch::Contains;
using testing::GpuStateBackend;

enum class StateOn : uint8_t { kHost, kGpu };
using Places = std::vector<StateOn>;

// A worker's cores: of the rank in a ring of so many.
using MakeCores = std::function<std::unique_ptr<Backend>(size_t rank, size_t size)>;

enum class Until : uint8_t { kNextStep, kEnd };

// The workers of a job, prepared one after the other. Main thread: it asserts.
class MixedRing {
 public:
  MixedRing(const Places& places, const v1::JobSpec& spec, const SmallDataset& data,
            const MakeCores& make_cores) {
    TrainerOptions options = SmallBuckets();
    options.bucket_elements = 50;
    for (size_t rank = 0; rank < places.size(); ++rank) {
      Worker& worker = workers_.emplace_back();
      worker.cores = make_cores(rank, places.size());
      Backend* backend = worker.cores.get();
      if (places[rank] == StateOn::kGpu) {
        worker.gpu = std::make_unique<GpuStateBackend>(backend, static_cast<int>(rank));
        backend = worker.gpu.get();
      }
      auto trainer =
          Trainer::Prepare(JobId("job"), ResolveSpec(spec, *data.dataset(), *backend),
                           data.dataset(), backend, Cores(rank % 2 == 0 ? 1 : 2), options);
      REQUIRE(Message(trainer.status()) == "");
      worker.trainer = *std::move(trainer);
    }
    for (size_t i = 0; i < kAllShards.size(); ++i) {
      workers_[i * workers_.size() / kAllShards.size()].shards.push_back(kAllShards[i]);
    }
  }

  [[nodiscard]] size_t size() const { return workers_.size(); }
  [[nodiscard]] Trainer& trainer(size_t rank) { return *workers_[rank].trainer; }
  [[nodiscard]] GpuStateBackend& gpu(size_t rank) { return *workers_[rank].gpu; }
  // Of all its GPUs.
  [[nodiscard]] testing::SumsRead sums_read() const {
    testing::SumsRead all;
    for (const Worker& worker : workers_) {
      if (worker.gpu == nullptr) continue;
      all.narrow += worker.gpu->sums_read().narrow;
      all.wide += worker.gpu->sums_read().wide;
    }
    return all;
  }

  // The next generation. `observer` is the first worker's.
  std::vector<RunResult> Run(Until until, Observer* observer = nullptr) {
    std::stop_source boundary;
    if (until == Until::kNextStep) boundary.request_stop();
    Generation generation{.counter = ++counter_};
    for (const Worker& worker : workers_) {
      generation.ring.push_back({.trainer = worker.trainer.get(),
                                 .shards = worker.shards,
                                 .at_boundary = boundary.get_token()});
    }
    generation.ring[0].observer = observer;
    generation.sink = sink_;
    return RunGeneration(generation);
  }

  // Runs to the end: the SHA-256 of the last checkpoint.
  std::string Finish(Observer* observer = nullptr) {
    const auto results = Run(Until::kEnd, observer);
    for (const RunResult& result : results) {
      INFO(result.reason);
      REQUIRE(result.end == RunEnd::kFinished);
      CHECK(result.digest == results[0].digest);
    }
    CHECK(results[0].manifest_sha256.size() == 64);
    return results[0].manifest_sha256;
  }

 private:
  struct Worker {
    std::unique_ptr<Backend> cores;
    std::unique_ptr<GpuStateBackend> gpu;  // where it keeps its state on one
    std::unique_ptr<Trainer> trainer;
    std::vector<uint32_t> shards;
  };
  std::vector<Worker> workers_;
  uint64_t counter_ = 0;
  const std::shared_ptr<MemorySink> sink_ = std::make_shared<MemorySink>();
};

// Images of 6 x 5 and four tensors in seven blocks: kernels that are emulated take their time.
v1::JobSpec FewParameters(const v1::Optimizer& optimizer) {
  v1::JobSpec spec = SmallSpec();
  for (const uint32_t side : {6, 5}) spec.mutable_data()->mutable_resize()->add_values(side);
  testing::SetHidden({9}, spec.mutable_model());
  spec.clear_augment();
  spec.add_augment()->mutable_per_image_standardization();
  *spec.mutable_optimizer() = optimizer;
  return spec;
}

// Skips steps 1 and 3, for what FakeCores makes of them.
v1::JobSpec SkippingSpec(const v1::Optimizer& optimizer) {
  v1::JobSpec spec = FewParameters(optimizer);
  spec.mutable_precision()->set_policy(v1::POLICY_MIXED_FLOAT16);
  return spec;
}

// Of step 1 all shards of the first worker have a gradient that is not finite, of step 3 those of
// the last one.
std::unique_ptr<Backend> FakeCores(size_t rank, size_t size) {
  FakeHooks hooks;
  hooks.has_state = [](uint32_t) { return false; };
  hooks.has_master = [](uint32_t) { return false; };
  hooks.augments = [rank](uint32_t) { return rank % 2 == 1; };
  hooks.on_gradient = [rank, size](const ShardInput& input, uint32_t tensor,
                                   std::span<float> gradient) {
    const bool bad = input.step == 1 ? rank == 0 : input.step == 3 && rank + 1 == size;
    if (bad && tensor == 0) gradient[3] = std::numeric_limits<float>::quiet_NaN();
  };
  return std::make_unique<FakeBackend>(hooks);
}

std::unique_ptr<Backend> CpuCores(size_t, size_t) {
  auto backend = MakeBackend("cpu");
  REQUIRE(Message(backend.status()) == "");
  return *std::move(backend);
}

v1::Optimizer Clipped(v1::Optimizer optimizer) {
  optimizer.mutable_clip()->set_global_norm(0.125);
  return optimizer;
}

// All workers hold S(step), byte for byte: parameters, slots, exponents, counts, and its digest.
void CheckOneState(MixedRing& ring, uint64_t step) {
  const auto first = CopyOf(ring.trainer(0), step);
  REQUIRE(Message(first.status()) == "");
  for (size_t rank = 1; rank < ring.size(); ++rank) {
    INFO("rank " << rank);
    const auto copy = CopyOf(ring.trainer(rank), step);
    REQUIRE(Message(copy.status()) == "");
    CHECK(copy->its.digest == first->its.digest);
    CHECK(*copy == *first);
  }
}

}  // namespace

TEST_CASE("Mixed ring: hosts and GPUs hold the same bits after every step, skipped ones too") {
  using enum StateOn;
  const std::vector<std::pair<v1::Optimizer, Places>> cases = {
      {testing::Sgd(0.1, 0.9, true), {kHost, kGpu}},
      {testing::Adam(), {kGpu, kHost}},
      {Clipped(testing::Adam()), {kGpu, kHost, kGpu}},
      {testing::Lamb(), {kHost, kGpu, kHost}}};
  const SmallDataset data(kTrain, kTest);
  for (const auto& [optimizer, places] : cases) {
    INFO(optimizer.ShortDebugString());
    const v1::JobSpec spec = SkippingSpec(optimizer);
    ProgressList progress;
    MixedRing hosts(Places(places.size(), kHost), spec, data, FakeCores);
    const std::string expected = hosts.Finish(&progress);
    CHECK(progress.all.back().updates == kSteps - 2);
    std::map<uint64_t, Sha256Digest> digests;
    for (const Progress& each : progress.all) digests[each.applied] = each.digest;

    MixedRing mixed(places, spec, data, FakeCores);
    for (uint64_t step = 1; step < kSteps; ++step) {
      INFO("step " << step);
      for (const RunResult& result : mixed.Run(Until::kNextStep)) {
        INFO(result.reason);
        REQUIRE(result.end == RunEnd::kStopped);
        REQUIRE(result.applied == step);
        CHECK(result.digest == digests[step]);
      }
      CheckOneState(mixed, step);
    }
    CHECK(mixed.Finish() == expected);
    CheckOneState(mixed, kSteps);
    // At the beginning and behind a skipped step units are small, and integers large.
    CHECK(mixed.sums_read().narrow > 0);
    CHECK(mixed.sums_read().wide > 0);
    CHECK(mixed.sums_read().narrow + mixed.sums_read().wide >= 2 * kSteps);
  }
  CHECK(testing::LiveObjects() == 0);
}

TEST_CASE("Mixed ring: a job on CPU kernels has one SHA-256 wherever its workers keep the state") {
  using enum StateOn;
  const SmallDataset data(kTrain, kTest);
  v1::JobSpec spec = FewParameters(testing::Adam());
  spec.mutable_optimizer()->mutable_ema();  // which is what evaluations see
  ProgressList host, mixed;
  const std::string expected = MixedRing({kHost}, spec, data, CpuCores).Finish(&host);
  CHECK(MixedRing({kGpu, kHost}, spec, data, CpuCores).Finish(&mixed) == expected);
  REQUIRE(host.all.back().test.has_value());
  CHECK(mixed.all.back().test == host.all.back().test);
  spec.set_seed(2);
  CHECK(MixedRing({kHost}, spec, data, CpuCores).Finish() != expected);
}

TEST_CASE("Mixed ring: a flipped bit of a GPU's parameter is named by its worker alone") {
  using enum StateOn;
  const SmallDataset data(kTrain, kTest);
  const v1::JobSpec spec = SkippingSpec(testing::Adam());
  for (const uint64_t step : {1, 2}) {  // one that is skipped, one that updates
    INFO("step " << step);
    MixedRing ring({kGpu, kHost, kGpu}, spec, data, FakeCores);
    for (uint64_t i = 0; i < step; ++i) {
      for (const RunResult& result : ring.Run(Until::kNextStep)) REQUIRE(result.applied == i + 1);
    }
    float& parameter = ring.gpu(2).parameters().front();
    parameter = std::bit_cast<float>(std::bit_cast<uint32_t>(parameter) ^ 1);
    const std::vector<RunResult> results = ring.Run(Until::kEnd);
    const std::string named =
        fmt::format("the state of step {} is not what was written: the parameters differs", step);
    CHECK(results[2].end == RunEnd::kFailed);
    CHECK(results[2].code == v1::FAILURE_CODE_STATE_DIFFERS);
    CHECK(results[2].applied == step);
    CHECK_THAT(results[2].reason, Contains(named));
    CHECK(absl::IsDataLoss(ring.trainer(2).whole()));
    for (const size_t rank : {0, 1}) {
      INFO("rank " << rank << ": " << results[rank].reason);
      CHECK(results[rank].end == RunEnd::kPeerLost);
      CHECK(results[rank].code == v1::FAILURE_CODE_UNSPECIFIED);
      CHECK(Message(ring.trainer(rank).Check()) == "");
    }
  }
  CHECK(testing::LiveObjects() == 0);
}

}  // namespace ringmaster::worker
