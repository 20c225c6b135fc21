// Workers whose cores make the images of pixels: the bytes are those of workers whose loader does.
// (The other tests of this folder run with both kinds, too: FakeHooks::augments.)
#include <atomic>
#include <catch2/catch.hpp>
#include <string>

#include "tests/worker/train/fake_case.h"

namespace ringmaster::worker {
namespace {

enum class Maker { kLoader, kCores, kBoth };

FakeHooks HooksWith(Maker maker) {
  FakeHooks hooks;
  hooks.augments = [maker](uint32_t job) {
    return maker == Maker::kCores || (maker == Maker::kBoth && job % 2 == 1);
  };
  return hooks;
}

// What runs were given.
struct Given {
  FakeHooks Hooks(Maker maker) {
    FakeHooks hooks = HooksWith(maker);
    hooks.own_memory = true;
    hooks.before_shard = [this](const ShardInput& input) {
      Count(input);
      return absl::OkStatus();
    };
    hooks.before_evaluation = [this](const ShardInput& input) { Count(input); };
    hooks.on_core = [this](const CoreOptions& core) {
      device_shared += core.shared_bytes;
      return absl::OkStatus();
    };
    hooks.before_stage = [this](const InputStageOptions& options) {
      slots = options.slots;
      slot_bytes = options.slot_bytes;
      device = options.device;
      return absl::OkStatus();
    };
    return hooks;
  }
  void Count(const ShardInput& input) {
    ++runs;
    if (!input.pixels.empty()) ++with_pixels;
    if (input.staged != nullptr) ++staged;
  }

  std::atomic<size_t> runs = 0, with_pixels = 0, staged = 0;
  std::atomic<size_t> slots = 0, slot_bytes = 0, device = 0;
  std::atomic<size_t> device_shared = 0;  // by all cores
};

TEST_CASE("Augmenting cores: every checkpoint is that of a loader, alone and in rings") {
  FakeCase loader(HooksWith(Maker::kLoader));
  const auto reference = loader.Run(kAlone);
  RequireFinished(reference);
  FakeCase job(HooksWith(GENERATE(Maker::kCores, Maker::kBoth)));
  const std::vector<Cluster> clusters = {
      kAlone, {{3, {0, 1, 2, 3}}}, {{1, {0, 2}}, {2, {1, 3}}}, {{1, {}}, {1, {0, 1, 2}}, {1, {3}}}};
  const auto results = job.Run(clusters[GENERATE(range<size_t>(0, 4))]);
  RequireFinished(results);
  REQUIRE(results[0].checkpoints.size() == reference[0].checkpoints.size());
  for (size_t i = 0; i < results[0].checkpoints.size(); ++i) {
    REQUIRE(results[0].checkpoints[i].manifest_sha256 ==
            reference[0].checkpoints[i].manifest_sha256);
  }
  REQUIRE(results[0].run.digest == reference[0].run.digest);
  for (const MemberResult& result : results) {
    for (const std::string& known : result.known_shard_sha256) {
      REQUIRE(known == reference[0].known_shard_sha256[0]);
    }
  }
}

TEST_CASE("Augmenting cores: they get pixels, and of training and evaluation some ahead") {
  Given given;
  FakeCase job(given.Hooks(Maker::kCores));
  RequireFinished(job.Run({{2, {0, 1, 2, 3}}}));
  CHECK(given.runs > 0);
  CHECK(given.with_pixels == given.runs);
  CHECK(given.staged > 0);
  // In hand and next for each core, and one more; batches of 20 in four shards, of 3072 bytes each.
  CHECK(given.slots == 5);
  CHECK(given.slot_bytes == 5 * 3072);
  CHECK(given.device_shared == 5 * 5 * 3072);
  Given other;
  FakeCase with_loader(other.Hooks(Maker::kLoader));
  RequireFinished(with_loader.Run(kAlone));
  CHECK(other.with_pixels == 0);
  CHECK(other.slots == 0);
  CHECK(other.device_shared == 0);
}

TEST_CASE("Augmenting cores: nothing is copied ahead for cores on several devices") {
  Given given;
  FakeCase job(given.Hooks(Maker::kCores));
  for (const uint32_t second : {3, 2}) {
    given.slots = 0;
    std::vector<CoreOptions> cores = Cores(2);
    cores[0].device = 3;
    cores[1].device = second;
    const auto trainer = Trainer::Prepare(JobId("job"), job.resolved, job.data.dataset(),
                                          &job.backend, cores, SmallBuckets());
    REQUIRE(trainer.ok());
    CHECK((given.slots > 0) == (second == 3));
    CHECK(given.device == 3);
  }
}

TEST_CASE("Augmenting cores: without room for what is copied ahead nothing is, and the job runs") {
  Given given;
  FakeHooks hooks = given.Hooks(Maker::kCores);
  const Status none = Error(absl::StatusCode::kResourceExhausted, "no room");
  if (GENERATE(true, false)) {  // found by the plan, or by the device
    hooks.on_core = [none](const CoreOptions& core) {
      return core.shared_bytes == 0 ? absl::OkStatus() : none;
    };
  } else {
    hooks.before_stage = [none](const InputStageOptions&) { return none; };
  }
  FakeCase job(std::move(hooks));
  RequireFinished(job.Run(kAlone));
  CHECK(given.with_pixels == given.runs);
  CHECK(given.staged == 0);
}

}  // namespace
}  // namespace ringmaster::worker
