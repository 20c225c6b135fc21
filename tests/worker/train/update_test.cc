// Whole jobs with everything that optimizers have: the same bytes in every cluster, on hosts and on
// devices; what averages are evaluated and saved as, and that they survive.
#include "worker/train/update.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "common/job/job_file.h"
#include "common/safetensors.h"
#include "tests/support/model_option.h"
#include "tests/worker/train/regroup_case.h"

namespace ringmaster::worker {
namespace {

// SmallSpec with this optimizer, as in a job file, and a checkpoint of every state.
v1::JobSpec With(const std::string& optimizer) {
  v1::JobSpec spec = SmallSpec();
  testing::SetHidden({7}, spec.mutable_model());  // kernels and biases, of odd sizes
  spec.mutable_checkpoint()->set_every_steps(1);
  spec.clear_optimizer();
  const Status read = job::ReadYaml("optimizer", optimizer, spec.mutable_optimizer());
  INFO(Message(read));
  REQUIRE(read.ok());
  return spec;
}

const std::vector<std::string> kOptimizers = {
    "{sgd: {momentum: 0.9}, clip: {global_norm: 1}, weight_decay: {rate: 0.01},"
    " schedule: {warmup: {over: {updates: 2}}, cosine: {}}, ema: {decay: 0.9}}",
    "{adam: {}, clip: {tensor_norm: 0.1}, weight_decay: {rate: 0.1, kind: l2},"
    " groups: [{match: \"*/bias\", learning_rate: 3, weight_decay: 0.2}]}",
    "{adam: {learning_rate: 0.01}, clip: {value: 0.01}, weight_decay: {rate: 0.1, groups: [bias]},"
    " schedule: {steps: {every: {updates: 2}}}, ema: {start_update: 2, evaluate: false}}",
    "{rmsprop: {momentum: 0.5, centered: true}, weight_decay: {rate: 0.1}}",
    "{lars: {trust: 0.1}, weight_decay: {rate: 0.1}, clip: {tensor_norm: 0.1}, ema: {}}",
    "{lamb: {}, weight_decay: {rate: 0.1}, clip: {value: 0.01},"
    " groups: [{match: \"dense1/*\", learning_rate: 0.5}]}",
};

FakeHooks HooksOn(bool device) {
  FakeHooks hooks;
  hooks.has_state = [device](uint32_t) { return device; };
  return hooks;
}

std::vector<float> Tensor(const Checkpoint& checkpoint, const std::string& file,
                          const std::string& name) {
  for (const CheckpointFile& each : checkpoint.files) {
    if (each.name != file) continue;
    const auto views = ReadSafetensors(each.bytes);
    REQUIRE(views.ok());
    REQUIRE(views->contains(name));
    const TensorView& view = views->at(name);
    std::vector<float> values(view.bytes.size() / sizeof(float));
    std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
    return values;
  }
  FAIL("no file " << file);
  return {};
}

TEST_CASE("Update: every optimizer gives the same bytes in every cluster and on devices") {
  const std::string optimizer = kOptimizers[GENERATE(range<size_t>(0, kOptimizers.size()))];
  INFO(optimizer);
  FakeCase host(HooksOn(false), With(optimizer));
  const auto expected = host.Run(kAlone);
  RequireFinished(expected);
  for (const bool device : {false, true}) {
    FakeCase job(HooksOn(device), With(optimizer));
    for (const Cluster& cluster : std::vector<Cluster>{
             kAlone, {{3, {0, 1, 2, 3}}}, {{1, {3}}, {2, {0, 1}}, {1, {}}, {1, {2}}}}) {
      const auto results = job.Run(cluster);
      RequireFinished(results);
      REQUIRE(results[0].checkpoints.size() == kSteps);
      for (size_t i = 0; i < kSteps; ++i) {
        REQUIRE(results[0].checkpoints[i].manifest_sha256 ==
                expected[0].checkpoints[i].manifest_sha256);
      }
      for (const MemberResult& result : results) {
        REQUIRE(result.progress.back().test == expected[0].progress.back().test);
      }
    }
  }
}

// Whose norms are read while others still go round: of gradients, with weights, of steps.
TEST_CASE("Update: what was read of a step that ends early changes nothing") {
  const std::string optimizer = kOptimizers[GENERATE(0, 4, 5)];
  INFO(optimizer);
  FakeCase job(HooksOn(false), With(optimizer));
  const auto expected = job.Run(kAlone);
  RequireFinished(expected);
  for (size_t last = 1; last <= 30; ++last) {
    INFO("frame " << last);
    const auto first = job.Prepare(), second = job.Prepare();
    REQUIRE((first.ok() && second.ok()));
    ring::MemoryRing links(2);
    links.Tamper(0, [last, sent = size_t{0}](ring::Frame& frame) mutable {
      if (++sent == last) frame.header.step += 7;
    });
    Generation both;
    both.ring = {{.trainer = first->get(), .shards = {0, 1}},
                 {.trainer = second->get(), .shards = {2, 3}}};
    REQUIRE(RunGeneration(both, &links)[1].end != RunEnd::kFinished);
    Generation alone{.counter = 2};
    alone.ring = {{.trainer = first->get(), .shards = kAllShards}};
    alone.sink = std::make_shared<MemorySink>();
    REQUIRE(RunGeneration(alone)[0].manifest_sha256 == LastManifest(expected));
  }
}

// The first step of a rule with rate 1 is the gradient itself.
TEST_CASE("Update: a clipped gradient has the norm that it is clipped to") {
  FakeCase job({}, With("{sgd: {learning_rate: 1}, clip: {global_norm: 0.125}}"));
  const auto results = job.Run(kAlone);
  RequireFinished(results);
  double squares = 0;
  for (const v1::Parameter& parameter : job.resolved.result().graph().parameters()) {
    const auto before = Tensor(results[0].checkpoints[0], "model.safetensors", parameter.name());
    const auto after = Tensor(results[0].checkpoints[1], "model.safetensors", parameter.name());
    for (size_t i = 0; i < before.size(); ++i) {
      squares += std::pow(double{after[i]} - double{before[i]}, 2);
    }
  }
  CHECK(std::sqrt(squares) == Approx(0.125).epsilon(1e-5));
}

TEST_CASE("Update: the average is saved as a model, and evaluated where the job says so") {
  const std::string average = "{sgd: {}, ema: {decay: 0.5, evaluate: ";
  FakeCase plain({}, With("{sgd: {}}"));
  FakeCase averaged({}, With(average + "true}}"));
  FakeCase silent({}, With(average + "false}}"));
  FakeCase copied({}, With("{sgd: {}, ema: {decay: 0, evaluate: true}}"));
  const auto weights = plain.Run(kAlone);
  const auto results = averaged.Run(kAlone);
  const auto unread = silent.Run(kAlone);
  const auto copy = copied.Run(kAlone);
  for (const auto* each : {&weights, &results, &unread, &copy}) RequireFinished(*each);
  // Training does not see it.
  const std::string name = "dense1/kernel";
  const auto at = [&](const std::vector<MemberResult>& from, size_t step, const char* file) {
    return Tensor(from[0].checkpoints[step - 1], file, name);
  };
  const auto fresh = averaged.Prepare();
  REQUIRE(fresh.ok());
  const auto begin = (*fresh)->MakeCheckpoint();
  REQUIRE(begin.ok());
  CHECK(Tensor(*begin, "ema.safetensors", name) == Tensor(*begin, "model.safetensors", name));
  for (size_t step = 1; step <= kSteps; ++step) {
    const auto model = at(weights, step, "model.safetensors");
    CHECK(at(results, step, "model.safetensors") == model);
    CHECK(at(copy, step, "ema.safetensors") == model);
    CHECK(at(results, step, "ema.safetensors") == at(unread, step, "ema.safetensors"));
    if (step == 1) continue;
    const auto former = at(results, step - 1, "ema.safetensors");
    const auto found = at(results, step, "ema.safetensors");
    for (size_t i = 0; i < model.size(); ++i) {
      REQUIRE(found[i] == former[i] + (model[i] - former[i]) * 0.5F);
    }
  }
  const auto test = [](const std::vector<MemberResult>& from) {
    return from[0].progress.back().test->metrics;
  };
  CHECK(test(results) != test(weights));
  CHECK(test(unread) == test(weights));
  CHECK(test(copy) == test(weights));
}

TEST_CASE("Update: an average goes to joiners and comes back from checkpoints") {
  const std::string optimizer = kOptimizers[GENERATE(size_t{0}, size_t{2})];
  const bool device = GENERATE(false, true);
  FakeCase host(HooksOn(false), With(optimizer));
  const auto reference = host.Run(kAlone);
  RequireFinished(reference);
  FakeCase job(HooksOn(device), With(optimizer));
  // From the checkpoint of each step, also at an epoch's end, where the average is evaluated.
  for (size_t i = 0; i < kSteps; ++i) {
    auto trainer = job.Prepare();
    auto joiner = job.Prepare(2);
    REQUIRE((trainer.ok() && joiner.ok()));
    REQUIRE((*trainer)->Restore(reference[0].checkpoints[i]).ok());
    const auto copy = CopyOf(**trainer, i + 1);
    REQUIRE(copy.ok());
    REQUIRE(AdoptCopy(*copy, (*trainer)->digest(), joiner->get()).ok());
    Generation generation;
    generation.ring = {{.trainer = joiner->get(), .shards = {0, 1}},
                       {.trainer = trainer->get(), .shards = {2, 3}}};
    generation.sink = std::make_shared<MemorySink>();
    const auto results = RunGeneration(generation);
    for (const RunResult& result : results) {
      INFO(result.reason);
      REQUIRE(result.end == RunEnd::kFinished);
      REQUIRE(result.digest == reference[0].run.digest);
    }
    REQUIRE(results[0].manifest_sha256 == LastManifest(reference));
  }
}

TEST_CASE("Update: a copy without its average is refused") {
  const auto files = [](const std::string& optimizer, auto change) {
    FakeCase job({}, With(optimizer));
    auto trainer = job.Prepare();
    REQUIRE(trainer.ok());
    const auto checkpoint = (*trainer)->MakeCheckpoint();
    REQUIRE(checkpoint.ok());
    std::vector<CheckpointFile> changed = checkpoint->files;
    changed.pop_back();  // the manifest
    change(&changed);
    return Message((*trainer)->Restore(Seal(*VerifyCheckpoint(*checkpoint), std::move(changed))));
  };
  const auto without = [](std::vector<CheckpointFile>* all) {
    std::erase_if(*all, [](const CheckpointFile& file) { return file.name == "ema.safetensors"; });
  };
  CHECK(files("{sgd: {}, ema: {}}", without) == "job job: the checkpoint lacks ema.safetensors");
  CHECK(files("{sgd: {}, ema: {}}", [](auto*) {}).empty());
}

}  // namespace
}  // namespace ringmaster::worker
