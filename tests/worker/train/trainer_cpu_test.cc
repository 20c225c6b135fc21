// The promise with real kernels: whole checkpoints of small jobs, equal on every cluster.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/safetensors.h"
#include "tests/support/model_option.h"
#include "tests/worker/train/training_case.h"
#include "worker/backend/failure.h"
#include "worker/state/checkpoint.h"

namespace ringmaster::worker {
namespace {

const Cluster kOneCore = {{1, {0, 1, 2, 3}}};
const Cluster kFourCores = {{4, {0, 1, 2, 3}}};
const Cluster kThreeWorkers = {{2, {0, 1}}, {1, {2}}, {1, {3}}};
const Cluster kFourWorkers = {{1, {3}}, {1, {1}}, {1, {0}}, {1, {2}}};

std::unique_ptr<Backend> CpuBackend() {
  auto backend = MakeBackend("cpu");
  REQUIRE(backend.ok());
  return *std::move(backend);
}

std::vector<MemberResult> Run(const Cluster& cluster, const v1::JobSpec& spec,
                              const SmallDataset& data, Backend* backend,
                              const std::shared_ptr<const InitWeights>& init = nullptr) {
  const v1::ResolvedJob resolved = ResolveSpec(spec, *data.dataset(), *backend, init.get());
  auto results = RunCluster(cluster, resolved, data.dataset(), backend, {}, init);
  for (const MemberResult& result : results) {
    INFO(Message(result.prepared) << result.run.reason);
    REQUIRE(result.run.end == RunEnd::kFinished);
    REQUIRE(result.run.digest == results[0].run.digest);
    for (const std::string& known : result.known_shard_sha256) {
      REQUIRE(known == results[0].known_shard_sha256[0]);
    }
    REQUIRE(result.progress.back().test == results[0].progress.back().test);
  }
  return results;
}

v1::JobSpec MlpSpec(v1::Policy policy) {
  v1::JobSpec spec = SmallSpec();
  testing::SetHidden({48}, spec.mutable_model());
  testing::SetOption("dropout", 0.2, spec.mutable_model());
  spec.mutable_precision()->set_policy(policy);
  return spec;
}

TEST_CASE("Trainer on CPU kernels: mlp, every policy, the same bytes on every cluster") {
  const auto policy =
      GENERATE(v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16, v1::POLICY_MIXED_FLOAT16);
  const auto backend = CpuBackend();
  const SmallDataset data(42, 27);
  const v1::JobSpec spec = MlpSpec(policy);
  const std::string expected = LastManifest(Run(kOneCore, spec, data, backend.get()));
  REQUIRE(expected.size() == 64);
  for (const Cluster& cluster : {kFourCores, kThreeWorkers, kFourWorkers}) {
    REQUIRE(LastManifest(Run(cluster, spec, data, backend.get())) == expected);
  }
  v1::JobSpec other = spec;
  other.set_seed(2);
  REQUIRE(LastManifest(Run(kOneCore, other, data, backend.get())) != expected);
}

TEST_CASE("Trainer on CPU kernels: the loss falls and float32 sums agree to rounding") {
  const auto backend = CpuBackend();
  const SmallDataset data(200, 40);
  v1::JobSpec spec = MlpSpec(v1::POLICY_FLOAT32);
  spec.set_epochs(8);
  const auto exact = Run(kThreeWorkers, spec, data, backend.get());
  const double first = exact[0].progress[9].train[0].value;  // the first epoch's, at its end
  const double last = exact[0].progress.back().train[0].value;
  REQUIRE(first > 0);
  REQUIRE(last < 0.9 * first);
  spec.set_reduction(v1::REDUCTION_FLOAT32);
  const auto plain = Run(kThreeWorkers, spec, data, backend.get());
  REQUIRE(plain[0].progress.back().train[0].value == Approx(last).epsilon(0.05));
  REQUIRE(plain[0].checkpoints.back().files[0].bytes != exact[0].checkpoints.back().files[0].bytes);
}

// Logits of this model's first step are small; seeded with 2^24 their gradients leave float16.
TEST_CASE("Trainer on CPU kernels: float16 overflows, skips, and trains on, the same everywhere") {
  const auto backend = CpuBackend();
  const SmallDataset data(42, 27);
  v1::JobSpec spec = MlpSpec(v1::POLICY_MIXED_FLOAT16);
  spec.mutable_precision()->set_initial_loss_scale(1U << 24);
  spec.mutable_precision()->set_growth_steps(4);
  spec.set_epochs(8);
  const auto one = Run(kOneCore, spec, data, backend.get());
  const Progress& last = one[0].progress.back();
  REQUIRE(last.updates > 0);
  REQUIRE(last.updates < last.applied);
  REQUIRE(*last.loss_scale < 1U << 24);
  REQUIRE(*last.loss_scale >= 1);
  for (const Cluster& cluster : {kFourCores, kThreeWorkers}) {
    const auto results = Run(cluster, spec, data, backend.get());
    REQUIRE(LastManifest(results) == LastManifest(one));
    REQUIRE(results.back().progress.back().updates == last.updates);
  }
}

TEST_CASE("Trainer on CPU kernels: alexnet with batch norm and dropout") {
  const auto policy =
      GENERATE(v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16, v1::POLICY_MIXED_FLOAT16);
  const auto backend = CpuBackend();
  const SmallDataset data(30, 10);
  v1::JobSpec spec = SmallSpec();
  spec.mutable_model()->Clear();
  spec.mutable_model()->set_name("alexnet");
  testing::SetOption("batch_norm", true, spec.mutable_model());
  testing::SetOption("dropout", 0.2, spec.mutable_model());
  spec.mutable_precision()->set_policy(policy);
  spec.clear_epochs();
  spec.set_steps(2);  // 20 samples, then 10
  const auto one = Run({{2, {0, 1, 2, 3}}}, spec, data, backend.get());
  const auto two = Run({{1, {2, 3}}, {1, {0, 1}}}, spec, data, backend.get());
  REQUIRE(LastManifest(one) == LastManifest(two));
  REQUIRE(one[0].run.digest == two[0].run.digest);
}

// Bytes of the last checkpoint's model.safetensors.
const std::string& ModelOf(const std::vector<MemberResult>& results) {
  const std::vector<CheckpointFile>& files = results[0].checkpoints.back().files;
  const auto file = std::ranges::find(files, "model.safetensors", &CheckpointFile::name);
  REQUIRE(file != files.end());
  return file->bytes;
}

// Names of the tensors that two such files have with other bytes.
std::set<std::string> Differences(const std::string& a, const std::string& b) {
  const auto of_a = ReadSafetensors(a), of_b = ReadSafetensors(b);
  REQUIRE(of_a.ok());
  REQUIRE(of_b.ok());
  std::set<std::string> names;
  for (const auto& [name, view] : *of_a) {
    if (!std::ranges::equal(view.bytes, of_b->at(name).bytes)) names.insert(name);
  }
  return names;
}

TEST_CASE("Trainer on CPU kernels: a fine-tuned job is the same everywhere, frozen bytes stay") {
  const auto policy = GENERATE(v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16);
  const auto backend = CpuBackend();
  const SmallDataset data(30, 10);
  v1::JobSpec spec = SmallSpec();
  spec.mutable_model()->Clear();
  spec.mutable_model()->set_name("alexnet");
  testing::SetOption("batch_norm", true, spec.mutable_model());
  spec.mutable_precision()->set_policy(policy);
  spec.clear_epochs();
  spec.set_steps(3);
  const auto source = Run(kOneCore, spec, data, backend.get());
  const auto init = InitWeights::Read(ModelOf(source));
  REQUIRE(init.ok());
  spec.set_seed(2);
  spec.mutable_init()->set_file("unused.safetensors");
  spec.mutable_init()->add_fresh("fc*");
  // The first two blocks, and one in the middle without its convolution: its gradient passes.
  for (const char* const pattern : {"conv1/*", "bn1/*", "conv2/*", "bn2/*", "bn4/*"}) {
    spec.add_freeze(pattern);
  }
  spec.mutable_optimizer()->mutable_ema();
  const auto one = Run(kOneCore, spec, data, backend.get(), *init);
  const auto three = Run(kThreeWorkers, spec, data, backend.get(), *init);
  REQUIRE(LastManifest(one) == LastManifest(three));
  const std::set<std::string> trained = Differences(ModelOf(source), ModelOf(one));
  for (const char* const frozen :
       {"conv1/kernel", "bn1/gamma", "bn1/beta", "bn1/moving_mean", "bn1/moving_variance",
        "conv2/kernel", "bn2/moving_mean", "bn4/gamma", "bn4/moving_variance"}) {
    INFO(frozen);
    CHECK(!trained.contains(frozen));
  }
  for (const char* const name : {"conv3/kernel", "bn3/moving_mean", "conv4/kernel", "fc/kernel"}) {
    INFO(name);
    CHECK(trained.contains(name));
  }
  // What is drawn is drawn as ever, whatever is frozen: a rate of nothing changes zeros alone.
  v1::JobSpec all = spec;
  all.clear_freeze();
  spec.set_steps(1);
  all.set_steps(1);
  spec.mutable_optimizer()->mutable_adam()->set_learning_rate(1e-30);
  all.mutable_optimizer()->mutable_adam()->set_learning_rate(1e-30);
  const auto few = Run(kOneCore, spec, data, backend.get(), *init);
  const auto many = Run(kOneCore, all, data, backend.get(), *init);
  for (const std::string& name : Differences(ModelOf(few), ModelOf(many))) {
    INFO(name);
    CHECK((name == "fc/bias" || name.find("/moving_") != std::string::npos));
  }
}

TEST_CASE("Trainer on CPU kernels: a job does not begin with another file than its own") {
  const auto backend = CpuBackend();
  const SmallDataset data(30, 10);
  v1::JobSpec spec = SmallSpec();
  const auto first = Run(kOneCore, spec, data, backend.get());
  spec.set_seed(2);
  const auto second = Run(kOneCore, spec, data, backend.get());
  const auto init = InitWeights::Read(ModelOf(first)), other = InitWeights::Read(ModelOf(second));
  REQUIRE(init.ok());
  REQUIRE(other.ok());
  spec.mutable_init()->set_file("unused.safetensors");
  const v1::ResolvedJob resolved = ResolveSpec(spec, *data.dataset(), *backend, init->get());
  const auto run = [&](const std::shared_ptr<const InitWeights>& weights) {
    return RunCluster(kOneCore, resolved, data.dataset(), backend.get(), {}, weights)[0];
  };
  const MemberResult with = run(*init), without = run(nullptr);
  CHECK(Message(with.prepared) == "");
  CHECK(with.run.end == RunEnd::kFinished);
  const Status of_other = run(*other).prepared;
  CHECK(Message(of_other).starts_with("what the job begins with has SHA-256 "));
  CHECK(FailureOf(of_other) == v1::FAILURE_CODE_INIT);
  // It can take a later state of the job, by the same known shard, but not begin it.
  CHECK(Message(without.prepared) == "");
  CHECK(without.known_shard_sha256 == with.known_shard_sha256);
  CHECK(without.run.end == RunEnd::kFailed);
  CHECK(without.run.reason.starts_with("the job begins with other weights, which this worker has"));
  CHECK(Message(InitWeights::Read("no such file").status())
            .starts_with("not a safetensors file that can be read: "));
}

// Of a job that trained so, with its weights.
v1::JobSpec WithoutTraining(v1::JobSpec spec, v1::JobKind kind) {
  spec.set_kind(kind);
  spec.clear_length();
  spec.clear_optimizer();
  spec.clear_checkpoint();
  spec.mutable_init()->set_file("unused.safetensors");
  return spec;
}

// By name, of the last checkpoint's rows.
struct PredictedRows {
  std::string file;
  TensorViews tensors;
};
std::shared_ptr<const PredictedRows> PredictionsOf(const std::vector<Checkpoint>& checkpoints) {
  auto rows = std::make_shared<PredictedRows>();
  for (const CheckpointFile& file : checkpoints.back().files) {
    if (file.name == "predictions.safetensors") rows->file = file.bytes;
  }
  auto tensors = ReadSafetensors(rows->file);
  INFO(tensors.status());
  REQUIRE(tensors.ok());
  rows->tensors = *std::move(tensors);
  return rows;
}

TEST_CASE("Trainer on CPU kernels: predictions are those of the evaluation, on every cluster") {
  const auto policy = GENERATE(v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16);
  const auto backend = CpuBackend();
  const SmallDataset data(60, 43);  // batches of 20, 20 and 3, of which a shard is empty
  v1::JobSpec spec = SmallSpec();
  spec.mutable_model()->Clear();
  spec.mutable_model()->set_name("alexnet");
  testing::SetOption("batch_norm", true, spec.mutable_model());
  spec.mutable_precision()->set_policy(policy);
  const auto trained = Run(kOneCore, spec, data, backend.get());
  const auto init = InitWeights::Read(ModelOf(trained));
  REQUIRE(init.ok());
  const auto evaluated =
      Run(kThreeWorkers, WithoutTraining(spec, v1::JOB_KIND_EVALUATE), data, backend.get(), *init);
  CHECK(evaluated[0].progress.back().test->metrics == trained[0].progress.back().test->metrics);
  const v1::JobSpec predict = WithoutTraining(spec, v1::JOB_KIND_PREDICT);
  const auto one = Run(kOneCore, predict, data, backend.get(), *init);
  for (const Cluster& cluster : {kFourCores, kThreeWorkers, kFourWorkers}) {
    REQUIRE(LastManifest(Run(cluster, predict, data, backend.get(), *init)) == LastManifest(one));
  }
  const auto rows = PredictionsOf(one[0].checkpoints);
  REQUIRE(rows->tensors.size() == 1);
  const TensorView& view = rows->tensors.at("probabilities");
  REQUIRE(view.shape == std::vector<int64_t>{43, 10});
  std::vector<float> values(430);
  std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  size_t hits = 0;
  for (size_t i = 0; i < 43; ++i) {
    const auto row = std::span(values).subspan(i * 10, 10);
    int32_t label = 0;
    REQUIRE(data.dataset()
                ->Read(1, data::Split::kTest, i, std::as_writable_bytes(std::span(&label, 1)))
                .ok());
    hits += std::ranges::max_element(row) - row.begin() == label ? 1 : 0;
    float sum = 0;
    for (const float value : row) sum += value;
    CHECK(sum == Approx(1).margin(1e-5));
  }
  CHECK(evaluated[0].progress.back().test->metric("accuracy") == Approx(hits / 43.0));
}

TEST_CASE(
    "Trainer on CPU kernels: who takes over half of the predictions has the other half, too") {
  const auto backend = CpuBackend();
  const SmallDataset data(60, 43);
  v1::JobSpec spec = SmallSpec();
  const auto trained = Run(kOneCore, spec, data, backend.get());
  const auto init = InitWeights::Read(ModelOf(trained));
  REQUIRE(init.ok());
  const v1::JobSpec predict = WithoutTraining(spec, v1::JOB_KIND_PREDICT);
  const std::string expected = LastManifest(Run(kOneCore, predict, data, backend.get(), *init));
  const v1::ResolvedJob resolved = ResolveSpec(predict, *data.dataset(), *backend, init->get());
  const auto prepare = [&] {
    TrainerOptions options = SmallBuckets();
    options.init = *init;
    auto trainer =
        Trainer::Prepare(JobId("job"), resolved, data.dataset(), backend.get(), Cores(1), options);
    INFO(trainer.status());
    REQUIRE(trainer.ok());
    return *std::move(trainer);
  };
  const auto finish = [&](Trainer* trainer, uint64_t start) {
    const auto sink = std::make_shared<MemorySink>();
    const Assignment assignment{.generation = {1, 2},
                                .position = {.rank = 0, .size = 1},
                                .shards = {0, 1, 2, 3},
                                .start_step = start};
    const RunResult run = trainer->Run(assignment, {.sink = sink}, {});
    INFO(run.reason);
    REQUIRE(run.end == RunEnd::kFinished);
    return run.manifest_sha256;
  };
  const auto first = prepare();
  std::stop_source boundary;
  StopAt stop(2, &boundary);
  const Assignment assignment{
      .generation = {1, 1}, .position = {.rank = 0, .size = 1}, .shards = {0, 1, 2, 3}};
  const RunResult half =
      first->Run(assignment, {.observer = &stop, .at_boundary = boundary.get_token()}, {});
  INFO(half.reason);
  REQUIRE(half.end == RunEnd::kStopped);
  REQUIRE(first->applied() == 2);
  const auto copy = CopyOf(*first, 2);
  REQUIRE(copy.ok());
  const auto taken = prepare();
  // Once: a second state, after one that was not good, has room of its own.
  taken->MakeRoom();
  CHECK(absl::IsDataLoss(AdoptCopy(*copy, Sha256Digest{}, taken.get())));
  const Status adopted = AdoptCopy(*copy, first->digest(), taken.get());
  INFO(adopted);
  REQUIRE(adopted.ok());
  CHECK(finish(taken.get(), 2) == expected);
  const auto checkpoint = first->MakeCheckpoint();
  REQUIRE(checkpoint.ok());
  const auto rows = PredictionsOf({*checkpoint});
  CHECK(rows->tensors.at("probabilities").shape == std::vector<int64_t>{40, 10});
  const auto restored = prepare();
  const Status status = restored->Restore(*checkpoint);
  INFO(status);
  REQUIRE(status.ok());
  CHECK(finish(restored.get(), 2) == expected);
}

// A normalized layer does not care how large its input is, so its gradients stay finite, and small,
// whatever the filters have grown to: here the first step makes them so large that variances times
// samples are far beyond 2^28.
TEST_CASE("Trainer on CPU kernels: batch statistics of huge activations end no job") {
  const auto backend = CpuBackend();
  const SmallDataset data(30, 10);
  v1::JobSpec spec = SmallSpec();
  spec.mutable_model()->Clear();
  spec.mutable_model()->set_name("alexnet");
  testing::SetOption("batch_norm", true, spec.mutable_model());
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(1e5);
  spec.clear_epochs();
  spec.set_steps(2);
  const auto one = Run(kOneCore, spec, data, backend.get());
  const auto three = Run(kThreeWorkers, spec, data, backend.get());
  REQUIRE(LastManifest(one) == LastManifest(three));
  const std::string& model = one[0].checkpoints.back().files[0].bytes;
  const auto tensors = ReadSafetensors(model);
  REQUIRE(tensors.ok());
  float largest = 0;  // of the moving variances, which have 0.01 of the newest batch's
  for (const auto& [name, tensor] : *tensors) {
    if (!name.ends_with("/moving_variance")) continue;
    std::vector<float> variances(tensor.bytes.size() / sizeof(float));
    std::memcpy(variances.data(), tensor.bytes.data(), tensor.bytes.size());
    largest = std::max(largest, std::ranges::max(variances));
  }
  REQUIRE(largest > 0x1p26F);
}

}  // namespace
}  // namespace ringmaster::worker
