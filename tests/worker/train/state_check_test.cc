// One flipped bit of a state: who holds it says so at once, and makes nothing of it any more.
#include "worker/train/state_check.h"

#include <catch2/catch.hpp>

#include "common/failpoint.h"
#include "tests/support/temporary_folder.h"
#include "tests/worker/train/fake_case.h"

namespace ringmaster::worker {
namespace {

using Catch::Contains;

// Points of this process, until it goes.
struct Armed {
  explicit Armed(const std::string& text) { REQUIRE(ArmFailpoints(text.c_str()).ok()); }
  ~Armed() { (void)ArmFailpoints(nullptr); }
};

// Where a device has the state nothing is flipped.
FakeHooks OnHosts() {
  FakeHooks hooks;
  hooks.has_state = [](uint32_t) { return false; };
  return hooks;
}

// SmallSpec has Adam; without checkpoints before the last.
v1::JobSpec WithoutCheckpoints() {
  v1::JobSpec spec = SmallSpec();
  spec.mutable_checkpoint()->set_every_steps(kSteps);
  return spec;
}

TEST_CASE("State check: a flipped bit is named at its step, in rings of one and of three") {
  const auto [part, named] =
      GENERATE(table<std::string, std::string>({{"parameter", "fc/"}, {"slot", "/m differs"}}));
  const bool alone = GENERATE(true, false);
  const Cluster cluster = alone ? kAlone : Cluster{{1, {0}}, {1, {1, 2}}, {1, {3}}};
  const uint64_t step = GENERATE(uint64_t{0}, uint64_t{4});
  INFO(part << " alone " << alone << " at " << step);
  const TemporaryFolder folder;
  FakeCase job(OnHosts(), WithoutCheckpoints());
  const Armed armed(fmt::format("state@{}=flip:{}!{}", step, part, folder / "token"));
  const auto results = job.Run(cluster);
  size_t found = 0;
  for (const MemberResult& result : results) {
    CHECK(result.checkpoints.empty());
    if (result.run.code != v1::FAILURE_CODE_STATE_DIFFERS) continue;
    ++found;
    CHECK(result.run.end == RunEnd::kFailed);
    CHECK(result.run.applied == step);
    CHECK_THAT(result.run.reason,
               Contains(fmt::format("the state of step {} is not what was written", step)) &&
                   Contains(named));
  }
  CHECK(found == 1);
}

TEST_CASE("State check: before a copy for a checkpoint all of the state is looked at") {
  FakeCase job(OnHosts(), WithoutCheckpoints());
  const Armed armed(fmt::format("state@{}=flip:slot", kSteps));
  const auto results = job.Run(kAlone);
  CHECK(results[0].run.code == v1::FAILURE_CODE_STATE_DIFFERS);
  CHECK(results[0].run.applied == kSteps);
  CHECK(results[0].checkpoints.empty());
}

TEST_CASE("State check: nothing is handed over of a state that differs") {
  FakeCase job(OnHosts());
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  CHECK((*trainer)->Check().ok());
  CHECK((*trainer)->Open(0).ok());
  CHECK((*trainer)->MakeCheckpoint().ok());
  {
    const Armed armed("state@0=flip:parameter");
    const Assignment alone{.position = {0, 1}, .shards = {0, 1, 2, 3}};
    CHECK((*trainer)->Run(alone, {}, {}).code == v1::FAILURE_CODE_STATE_DIFFERS);
  }
  CHECK((*trainer)->whole().code() == absl::StatusCode::kDataLoss);
  CHECK((*trainer)->Check().code() == absl::StatusCode::kDataLoss);
  CHECK((*trainer)->Open(0).status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK((*trainer)->MakeCheckpoint().status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("State check: a value that is not finite after an update fails the job, and names it") {
  v1::JobSpec spec = WithoutCheckpoints();
  spec.clear_optimizer();
  spec.mutable_optimizer()->mutable_sgd();
  FakeCase job(OnHosts(), spec);
  // No job file may say so.
  job.resolved.mutable_result()->mutable_optimizer()->mutable_sgd()->set_learning_rate(1e300);
  const auto results = job.Run({{1, {0, 1}}, {1, {2, 3}}});
  // Who finds it first closes its link: the other may be in the same step still.
  size_t found = 0;
  for (const MemberResult& result : results) {
    CHECK(result.checkpoints.empty());
    if (result.run.end == RunEnd::kPeerLost) continue;
    CHECK(result.run.code == v1::FAILURE_CODE_NOT_FINITE);
    ++found;
    CHECK(result.run.end == RunEnd::kFailed);
    CHECK_THAT(result.run.reason,
               Contains("fc/") && Contains("is not finite (NaN or infinity) after the update"));
  }
  CHECK(found >= 1);
}

}  // namespace
}  // namespace ringmaster::worker
