// Dynamic loss scaling of mixed_float16 in the step loop, with overflows that a script makes.
#include "worker/state/state.h"

#include <catch2/catch.hpp>
#include <limits>
#include <set>

#include "common/safetensors.h"
#include "tests/worker/train/fake_case.h"
#include "worker/state/checkpoint.h"
#include "worker/train/step_loop.h"

namespace ringmaster::worker {
namespace {

v1::JobSpec ScaledSpec(uint32_t scale = 1024, uint32_t growth_steps = 100) {
  v1::JobSpec spec = SmallSpec();
  spec.mutable_precision()->set_policy(v1::POLICY_MIXED_FLOAT16);
  spec.mutable_precision()->set_initial_loss_scale(scale);
  spec.mutable_precision()->set_growth_steps(growth_steps);
  spec.mutable_checkpoint()->set_every_steps(1);
  return spec;
}

// Overflows in every shard of these steps.
FakeHooks OverflowAt(const std::set<uint64_t>& steps) {
  FakeHooks hooks;
  hooks.on_gradient = [steps](const ShardInput& input, uint32_t tensor, std::span<float> gradient) {
    if (tensor == 0 && steps.contains(input.step)) {
      gradient[7] = std::numeric_limits<float>::infinity();
    }
  };
  return hooks;
}

TensorViews FileOf(const Checkpoint& checkpoint, const std::string& name) {
  for (const CheckpointFile& file : checkpoint.files) {
    if (file.name != name) continue;
    auto views = ReadSafetensors(file.bytes);
    REQUIRE(views.ok());
    return *std::move(views);
  }
  FAIL("no file " << name);
  return {};
}

// Names of the tensors that differ between two states, over all files.
std::set<std::string> Differences(const Checkpoint& a, const Checkpoint& b) {
  std::set<std::string> names;
  for (const char* const file :
       {"model.safetensors", "optimizer.safetensors", "state.safetensors"}) {
    const TensorViews of_b = FileOf(b, file);
    for (const auto& [name, view] : FileOf(a, file)) {
      if (!std::ranges::equal(view.bytes, of_b.at(name).bytes)) names.insert(name);
    }
  }
  return names;
}

int64_t Number(const Checkpoint& checkpoint, const std::string& name) {
  int64_t value = 0;
  const TensorViews views = FileOf(checkpoint, "state.safetensors");
  REQUIRE(views.at(name).bytes.size() == sizeof(value));
  std::memcpy(&value, views.at(name).bytes.data(), sizeof(value));
  return value;
}

TEST_CASE("LossScale: it doubles after growth_steps good steps, halves after a skipped one") {
  LossScale scale{.value = 8};
  scale = AfterGoodStep(scale, 2);
  REQUIRE(scale == LossScale{8, 1});
  scale = AfterGoodStep(scale, 2);
  REQUIRE(scale == LossScale{16, 0});
  scale = AfterGoodStep(scale, 2);
  REQUIRE(AfterSkippedStep(scale) == LossScale{8, 0});
  REQUIRE(AfterGoodStep({kLargestLossScale, 1}, 2) == LossScale{kLargestLossScale, 0});
  REQUIRE(AfterGoodStep({4, 0}, 1) == LossScale{8, 0});
}

TEST_CASE("LossScale: seed and inverse are exact") {
  for (uint32_t value = 1; value <= kLargestLossScale; value *= 2) {
    const LossScale scale{.value = value};
    REQUIRE(scale.inverse() * static_cast<float>(value) == 1.0F);
    REQUIRE(scale.seed(20) * scale.inverse() == 1.0F / 20.0F);
  }
}

TEST_CASE("Loss scaling: a skipped step changes step, digest, scale and units, and nothing else") {
  const bool first_of_epoch = GENERATE(false, true);
  const uint64_t step = first_of_epoch ? 3 : 1;  // three steps in an epoch
  FakeCase job(OverflowAt({step}), ScaledSpec());
  const auto results = job.Run({{1, {0, 1}}, {1, {2, 3}}});
  RequireFinished(results);
  const std::vector<Checkpoint>& all = results[0].checkpoints;  // all[k - 1] is S(k)
  const std::set<std::string> expected = {
      "step",       "digest",     "digest_before",       "sums",
      "loss_scale", "good_steps", "exponents/fc/kernel", "exponents/fc/bias"};
  REQUIRE(Differences(all[step - 1], all[step]) == expected);
  REQUIRE(Number(all[step], "loss_scale") == 512);
  REQUIRE(Number(all[step], "good_steps") == 0);
  REQUIRE(Number(all[step], "updates") == static_cast<int64_t>(step));
  REQUIRE(Number(all[step + 1], "updates") == static_cast<int64_t>(step) + 1);
  const TensorViews state = FileOf(all[step], "state.safetensors");
  int16_t exponent = 0;
  std::memcpy(&exponent, state.at("exponents/fc/bias").bytes.data(), sizeof(exponent));
  REQUIRE(exponent == 21 - 40);
  // The epoch's metrics are those of its applied steps.
  REQUIRE(Number(all[step + 1], "epoch") == (first_of_epoch ? 1 : 0));
  REQUIRE(Number(all[step + 1], "samples") == (first_of_epoch ? 20 : 22));
  const Progress& skipped = results[1].progress[first_of_epoch ? step + 1 : step];
  REQUIRE(skipped.applied == step + 1);
  REQUIRE(skipped.updates == step);
  REQUIRE(skipped.loss_scale == 512);
}

TEST_CASE("Loss scaling: skips and growth give the same bytes on every cluster") {
  const auto reduction = GENERATE(v1::REDUCTION_EXACT, v1::REDUCTION_FLOAT32);
  v1::JobSpec spec = ScaledSpec(1024, 2);
  spec.set_reduction(reduction);
  FakeCase job(OverflowAt({0, 3}), spec);
  const auto reference = job.Run(kAlone);
  RequireFinished(reference);
  REQUIRE(Number(reference[0].checkpoints[5], "updates") == 4);
  // 1024, skip, two good ones, skip, two good ones.
  REQUIRE(Number(reference[0].checkpoints[5], "loss_scale") == 1024);
  if (reduction == v1::REDUCTION_FLOAT32) return;
  const std::vector<Cluster> clusters = {
      {{4, {0, 1, 2, 3}}}, {{2, {0, 1}}, {2, {2, 3}}}, {{1, {0}}, {1, {1}}, {1, {2}}, {1, {3}}}};
  for (const Cluster& cluster : clusters) {
    const auto results = job.Run(cluster);
    RequireFinished(results);
    REQUIRE(results[0].run.digest == reference[0].run.digest);
    REQUIRE(results[0].known_shard_sha256[0] == reference[0].known_shard_sha256[0]);
    for (size_t i = 0; i < kSteps; ++i) {
      REQUIRE(results[0].checkpoints[i].manifest_sha256 ==
              reference[0].checkpoints[i].manifest_sha256);
    }
  }
}

TEST_CASE("Loss scaling: without an overflow the scale changes no parameter, and grows") {
  FakeCase one({}, ScaledSpec(1, 100));
  FakeCase scaled({}, ScaledSpec(1024, 2));
  const auto a = one.Run(kAlone);
  const auto b = scaled.Run(kAlone);
  RequireFinished(a);
  RequireFinished(b);
  REQUIRE(a[0].checkpoints[5].files[0].name == "model.safetensors");
  REQUIRE(a[0].checkpoints[5].files[0].bytes == b[0].checkpoints[5].files[0].bytes);
  REQUIRE(a[0].known_shard_sha256 == b[0].known_shard_sha256);
  REQUIRE(Number(a[0].checkpoints[5], "good_steps") == 6);
  REQUIRE(Number(b[0].checkpoints[4], "loss_scale") == 4096);
  REQUIRE(Number(b[0].checkpoints[4], "good_steps") == 1);
  REQUIRE(Number(b[0].checkpoints[5], "loss_scale") == 8192);
}

TEST_CASE("Loss scaling: a loss or statistic that cannot be added skips the step, too") {
  FakeHooks hooks;
  hooks.on_output = [](const ShardInput& input, ShardOutput* output) {
    if (input.step == 2) output->scalars[0] = std::numeric_limits<double>::quiet_NaN();
  };
  FakeCase job(hooks, ScaledSpec());
  const auto results = job.Run({{1, {0, 1, 2}}, {1, {3}}});
  RequireFinished(results);
  REQUIRE(Number(results[0].checkpoints[2], "updates") == 2);
  REQUIRE(Number(results[0].checkpoints[2], "loss_scale") == 512);
}

TEST_CASE("Loss scaling: a scale that would fall under 1 fails the job and says what to try") {
  FakeCase job(OverflowAt({1, 2, 3}), ScaledSpec(4));
  for (const MemberResult& result : job.Run({{1, {0, 1}}, {1, {2, 3}}})) {
    INFO(result.run.reason);
    REQUIRE(result.run.end == RunEnd::kFailed);
    REQUIRE(result.run.applied == 3);  // 4, 2, 1
    for (const char* const part :
         {"step 3", "shard 0", "fc/kernel", "loss scale is 1", "mixed_bfloat16"}) {
      REQUIRE(result.run.reason.find(part) != std::string::npos);
    }
  }
}

TEST_CASE("Loss scaling: a run that begins at a checkpoint ends with the same bytes") {
  FakeCase job(OverflowAt({2, 4}), ScaledSpec(1024, 2));
  const auto reference = job.Run(kAlone);
  RequireFinished(reference);
  const uint64_t from = GENERATE(2U, 3U, 4U);
  auto built = BuildTrainingJob(JobId("job"), job.resolved, job.data.dataset(), &job.backend,
                                Cores(2), SmallBuckets());
  REQUIRE(built.ok());
  TrainingJob& restored = **built;
  const Status status =
      RestoreState(reference[0].checkpoints[from - 1], job.resolved.result(), restored.state.get());
  INFO(Message(status));
  REQUIRE(status.ok());
  REQUIRE(restored.RefreshWeights().ok());
  const auto sink = std::make_shared<MemorySink>();
  const Assignment assignment{.generation = {1, 2}, .shards = {0, 1, 2, 3}, .start_step = from};
  const RunResult result = StepLoop(&restored, assignment, {nullptr, sink, nullptr}, {}).Run();
  INFO(result.reason);
  REQUIRE(result.end == RunEnd::kFinished);
  REQUIRE(result.manifest_sha256 == LastManifest(reference));
  REQUIRE(result.digest == reference[0].run.digest);
}

}  // namespace
}  // namespace ringmaster::worker
