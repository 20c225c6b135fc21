// Workers whose backend keeps the state: the bytes are those of workers whose host does. (The other
// tests of this folder run with both kinds, too: FakeHooks::has_state.)
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "tests/worker/train/regroup_case.h"

namespace ringmaster::worker {
namespace {

enum class Where { kHost, kDevice, kBoth };

FakeHooks HooksFor(Where where) {
  FakeHooks hooks;
  hooks.has_state = [where](uint32_t weights) {
    return where == Where::kDevice || (where == Where::kBoth && weights % 2 == 1);
  };
  return hooks;
}

void RequireSameCheckpoints(const std::vector<MemberResult>& found,
                            const std::vector<MemberResult>& expected) {
  REQUIRE(found[0].checkpoints.size() == expected[0].checkpoints.size());
  for (size_t i = 0; i < found[0].checkpoints.size(); ++i) {
    REQUIRE(found[0].checkpoints[i].manifest_sha256 == expected[0].checkpoints[i].manifest_sha256);
  }
  REQUIRE(found[0].run.digest == expected[0].run.digest);
}

TEST_CASE("DeviceCopy: every checkpoint is that of a host, alone and in rings") {
  FakeCase host(HooksFor(Where::kHost));
  const auto reference = host.Run(kAlone);
  RequireFinished(reference);
  FakeCase job(HooksFor(GENERATE(Where::kDevice, Where::kBoth)));
  const std::vector<Cluster> clusters = {
      kAlone, {{3, {0, 1, 2, 3}}}, {{1, {0, 2}}, {2, {1, 3}}}, {{1, {}}, {1, {0, 1, 2}}, {1, {3}}}};
  const size_t i = GENERATE(range<size_t>(0, 4));
  const auto results = job.Run(clusters[i]);
  RequireFinished(results);
  RequireSameCheckpoints(results, reference);
}

TEST_CASE("DeviceCopy: a job with plain sums stays on the host") {
  v1::JobSpec spec = SmallSpec();
  spec.set_reduction(v1::REDUCTION_FLOAT32);
  FakeHooks hooks = HooksFor(Where::kDevice);
  hooks.device.before_update = [](uint64_t) { return Internal("an update on the device"); };
  FakeCase job(std::move(hooks), spec);
  RequireFinished(job.Run(kAlone));
}

TEST_CASE("DeviceCopy: a copy for a peer is of the newest state, as is what a peer hands over") {
  FakeCase host(HooksFor(Where::kHost));
  const auto reference = host.Run(kAlone);
  Interrupt interrupt;
  FakeHooks hooks = interrupt.Hooks(HooksFor(Where::kDevice));
  FakeCase job(std::move(hooks));
  auto first = job.Prepare();
  auto second = job.Prepare();
  REQUIRE((first.ok() && second.ok()));
  std::stop_source stop;
  interrupt.Arm(10, [stop]() mutable { stop.request_stop(); });  // in step 2
  Generation generation;
  generation.ring = {{.trainer = first->get(), .shards = {0, 1, 2, 3}, .stop = stop.get_token()}};
  REQUIRE(RunGeneration(generation)[0].applied == 2);
  const auto copy = CopyOf(**first, 2);
  REQUIRE(copy.ok());
  REQUIRE(AdoptCopy(*copy, (*first)->digest(), second->get()).ok());
  Generation next{.counter = 2};
  next.ring = {{.trainer = second->get(), .shards = {0, 1}},
               {.trainer = first->get(), .shards = {2, 3}}};
  next.sink = std::make_shared<MemorySink>();
  const auto results = RunGeneration(next);
  for (const RunResult& result : results) {
    INFO(result.reason);
    REQUIRE(result.end == RunEnd::kFinished);
    REQUIRE(result.digest == reference[0].run.digest);
  }
  REQUIRE(results[0].manifest_sha256 == LastManifest(reference));
}

// Nobody finished, and one of them with the device's words.
RunResult TheOneThatFailed(const std::vector<MemberResult>& results) {
  RunResult found;
  size_t failed = 0;
  for (const MemberResult& result : results) {
    REQUIRE(result.run.end != RunEnd::kFinished);
    if (result.run.end != RunEnd::kFailed) continue;
    ++failed;
    REQUIRE(result.run.reason.find("the GPU fell off the bus") != std::string::npos);
    found = result.run;
  }
  REQUIRE(failed == 1);
  return found;
}

TEST_CASE("DeviceCopy: a device that fails in an update fails the run, with its words") {
  FakeHooks hooks = HooksFor(Where::kBoth);
  hooks.device.before_update = [](uint64_t update) {
    return update < 3 ? absl::OkStatus() : Status(absl::DataLossError("the GPU fell off the bus"));
  };
  FakeCase job(std::move(hooks));
  const auto results = job.Run({{1, {0, 1}}, {1, {2, 3}}});
  CHECK(TheOneThatFailed(results).applied == 2);
}

TEST_CASE("DeviceCopy: a state whose update failed is no state for later runs, nor for a peer") {
  FakeHooks hooks = HooksFor(Where::kDevice);
  hooks.device.before_update =
      [once = std::make_shared<std::atomic<bool>>(false)](uint64_t update) -> Status {
    if (update < 3 || once->exchange(true)) return absl::OkStatus();
    return absl::DataLossError("the GPU fell off the bus");
  };
  FakeCase job(std::move(hooks));
  auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  for (const uint64_t counter : {1, 2}) {
    Generation generation{.counter = counter};
    generation.ring = {{.trainer = trainer->get(), .shards = {0, 1, 2, 3}}};
    const RunResult result = RunGeneration(generation)[0];
    CHECK(result.end == RunEnd::kFailed);
    CHECK(result.applied == 2);
    CHECK_THAT(result.reason, Catch::Contains("the GPU fell off the bus"));
  }
  const auto copy = CopyOf(**trainer, 2);
  CHECK_THAT(Message(copy.status()), Catch::Contains("the GPU fell off the bus"));
}

TEST_CASE("DeviceCopy: a bit that changes in a device's memory is named at its step") {
  const bool alone = GENERATE(true, false);
  FakeHooks hooks = HooksFor(Where::kDevice);
  hooks.device.flips = [once = std::make_shared<std::atomic<bool>>(false)](uint64_t update) {
    return update == 3 && !once->exchange(true);
  };
  v1::JobSpec spec = SmallSpec();
  spec.mutable_checkpoint()->set_every_steps(kSteps);
  FakeCase job(std::move(hooks), spec);
  size_t found = 0;
  for (const MemberResult& result : job.Run(alone ? kAlone : Cluster{{1, {0, 1}}, {1, {2, 3}}})) {
    CHECK(result.checkpoints.empty());
    if (result.run.code != v1::FAILURE_CODE_STATE_DIFFERS) continue;
    ++found;
    CHECK(result.run.end == RunEnd::kFailed);
    CHECK(result.run.applied == 2);
    CHECK_THAT(result.run.reason,
               Catch::Contains("the state of step 2 is not what was written: the parameters"));
  }
  CHECK(found == 1);
}

TEST_CASE("DeviceCopy: a device that fails in a ring is no lost peer, but the end of its own run") {
  FakeHooks hooks = HooksFor(Where::kBoth);
  const auto fail = [calls = std::make_shared<std::atomic<int>>(0)]() -> Status {
    return ++*calls < 7 ? absl::OkStatus()
                        : Status(absl::DataLossError("the GPU fell off the bus"));
  };
  (GENERATE(true, false) ? hooks.device.before_read : hooks.device.before_write) = fail;
  FakeCase job(std::move(hooks));
  const auto results = job.Run({{1, {0, 1}}, {1, {2, 3}}});
  (void)TheOneThatFailed(results);
}

}  // namespace
}  // namespace ringmaster::worker
