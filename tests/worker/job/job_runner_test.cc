// Real runners in one process: states and frames go over loopback, kernels are fakes.
#include "worker/job/job_runner.h"

#include <catch2/catch.hpp>

#include "common/data/sample_data.h"
#include "common/signals.h"
#include "tests/support/temporary_folder.h"
#include "tests/worker/job/fake_checkpoint_folder.h"
#include "tests/worker/job/runner_node.h"
#include "tests/worker/train/fake_case.h"
#include "tests/worker/transfer/gate.h"

namespace ringmaster::worker {
namespace {

const JobId kRunnersJob("job");

// A dataset in a folder of its own, a job of kSteps steps over it, and where checkpoints go.
struct World {
  World() {
    const Status made = data::MakeSampleData(folder / "cifar10", {.train = kTrain, .test = kTest});
    RING_CHECK(made.ok(), Message(made).c_str());
    source.set_format("cifar10");
    source.set_path("cifar10");
    auto opened = Dataset::Open({folder.path(), ""}, source);
    RING_CHECK(opened.ok(), Message(opened.status()).c_str());
    dataset = *std::move(opened);
    resolved = ResolveSpec(SmallSpec(), *dataset, FakeBackend());
  }

  // Of a run that nothing disturbed.
  [[nodiscard]] std::string LastManifestAlone() const {
    FakeBackend backend;
    return LastManifest(RunCluster(kAlone, resolved, dataset, &backend));
  }

  TemporaryFolder folder;
  v1::DataSource source;
  std::shared_ptr<const Dataset> dataset;
  v1::ResolvedJob resolved;
  FakeCheckpointFolder checkpoints;
};

// A node with the job prepared.
struct Member {
  Member(World* world, const std::string& name, FakeHooks hooks = {})
      : node(name, world->folder.path(), world->checkpoints.channel(), std::move(hooks)) {
    node.runner().Submit(InspectDataset{kRunnersJob, world->source});
    RING_CHECK(node.Await<InspectDone>()->error.empty(), "the dataset is there");
    node.runner().Submit(PrepareJob{kRunnersJob, world->resolved});
    const auto prepared = node.Await<PrepareDone>();
    RING_CHECK(prepared && prepared->error.empty(), "the job is prepared");
    digest = prepared->digest;
    class_maps = world->resolved.result().class_maps();
  }
  RunEnded Ended() {
    auto ended = node.Await<RunEnded>();
    RING_CHECK(ended.has_value(), "the run ends");
    return *std::move(ended);
  }

  RunnerNode node;
  std::string digest;  // digest(0)
  Trainer::ClassMaps class_maps;
};

struct Part {
  Member* member;
  std::vector<uint32_t> shards;
  bool holds = true;
};

v1::Start StartOf(uint64_t counter, uint64_t step, const std::string& digest,
                  const std::vector<Part>& parts) {
  v1::Start start;
  start.set_job_id(kRunnersJob.value());
  start.mutable_generation()->set_term(1);
  start.mutable_generation()->set_counter(counter);
  start.set_start_step(step);
  start.set_ticket(std::string(16, 't'));
  start.set_digest(digest);
  *start.mutable_class_maps() = parts.front().member->class_maps;
  for (const Part& part : parts) {
    v1::RingMember& member = *start.add_ring();
    member.set_name(part.member->node.name());
    member.set_incarnation(part.member->node.name());
    member.set_ring_address(part.member->node.address());
    member.set_holds(part.holds);
    for (const uint32_t shard : part.shards) member.add_shards(shard);
  }
  return start;
}

void RunAll(const v1::Start& start, const std::vector<Member*>& members) {
  for (Member* member : members) member->node.runner().Submit(RunJob{kRunnersJob, start});
}

// Holds the first shard of one step until it is let go.
struct Brake {
  explicit Brake(uint64_t at) : step(at) {}
  FakeHooks hooks() {
    FakeHooks hooks;
    hooks.before_shard = [this](const ShardInput& input) -> Status {
      if (input.step != step) return absl::OkStatus();
      reached.Open();
      return go_on.Await() ? absl::OkStatus() : Internal("nobody let the shard go on");
    };
    return hooks;
  }
  const uint64_t step;
  Gate reached, go_on;
};

TEST_CASE(
    "JobRunner: a worker joins at a boundary, fetches the state, and the result is the same") {
  World world;
  Brake brake(2);
  Member first(&world, "w1", brake.hooks());
  Member joiner(&world, "w2");
  REQUIRE(joiner.digest == first.digest);
  RunAll(StartOf(1, 0, first.digest, {{&first, {0, 1, 2, 3}}}), {&first});
  CHECK(first.node.Await<RunJoined>()->fetch_seconds == 0);
  REQUIRE(brake.reached.Await());
  first.node.runner().Cancel("a worker joins", RunStop::kAtBoundary);
  brake.go_on.Open();
  const RunEnded fenced = first.Ended();
  REQUIRE(fenced.outcome == Outcome::kStopped);
  REQUIRE(fenced.applied == 3);  // the step in hand was finished

  const v1::Start start =
      StartOf(2, fenced.applied, fenced.digest, {{&first, {0, 1}}, {&joiner, {2, 3}, false}});
  RunAll(start, {&first, &joiner});
  CHECK(joiner.node.Await<RunJoined>()->fetch_seconds > 0);
  CHECK(first.node.Await<RunJoined>()->fetch_seconds == 0);
  const RunEnded ended = first.Ended();
  const RunEnded other = joiner.Ended();
  INFO(ended.reason << other.reason);
  REQUIRE(ended.outcome == Outcome::kFinished);
  REQUIRE(other.outcome == Outcome::kFinished);
  CHECK(ended.applied == kSteps);
  CHECK(other.digest == ended.digest);
  CHECK(ended.manifest_sha256 == world.LastManifestAlone());
  CHECK(world.checkpoints.Manifest(kSteps) == ended.manifest_sha256);
}

TEST_CASE("JobRunner: a run that is fenced now drops its step, and its shards are acknowledged") {
  World world;
  Brake brake(2);
  Member member(&world, "w1", brake.hooks());
  RunAll(StartOf(1, 0, member.digest, {{&member, {0, 1, 2, 3}}}), {&member});
  REQUIRE(brake.reached.Await());
  member.node.runner().Cancel("fenced", RunStop::kNow);
  brake.go_on.Open();
  const RunEnded fenced = member.Ended();
  CHECK(fenced.outcome == Outcome::kStopped);
  CHECK(fenced.applied == 2);
  CHECK(fenced.folded.size() == 1);  // the kernel ran to its end
  // A generation that never comes to train leaves what was computed as it is.
  member.node.runner().Submit(
      RunJob{kRunnersJob, StartOf(2, 5, std::string(32, 'x'), {{&member, {0, 1, 2, 3}}})});
  const RunEnded failed = member.Ended();
  CHECK(failed.outcome == Outcome::kFailed);
  CHECK(failed.applied == 2);
  CHECK(failed.folded == fenced.folded);
}

TEST_CASE("JobRunner: a fence ends a run that still waits for its state") {
  World world;
  Member source(&world, "w1");
  for (const RunStop when : {RunStop::kAtBoundary, RunStop::kNow}) {
    Member joiner(&world, "w2");
    // The source holds S(0), so it is asked again and again.
    RunAll(StartOf(1, 3, std::string(32, 'x'), {{&source, {0, 1}}, {&joiner, {2, 3}, false}}),
           {&joiner});
    joiner.node.runner().Cancel("fenced", when);
    const RunEnded ended = joiner.Ended();
    CHECK(ended.outcome == Outcome::kStopped);
    CHECK(ended.applied == 0);
    CHECK(ended.digest == joiner.digest);
  }
}

TEST_CASE("JobRunner: a fence ends a run that still waits for its ring") {
  World world;
  Member here(&world, "w1");
  Member absent(&world, "w2");
  RunAll(StartOf(1, 0, here.digest, {{&here, {0, 1}}, {&absent, {2, 3}}}), {&here});
  here.node.runner().Cancel("fenced", RunStop::kAtBoundary);
  CHECK(here.Ended().outcome == Outcome::kStopped);
}

TEST_CASE(
    "JobRunner: a job that begins behind the drop of the one before is the one that is served") {
  World world;
  Brake brake(2);
  Member member(&world, "w1", brake.hooks());
  RunAll(StartOf(1, 0, member.digest, {{&member, {0, 1, 2, 3}}}), {&member});
  REQUIRE(brake.reached.Await());
  JobRunner& runner = member.node.runner();
  runner.Cancel("the job is dropped", RunStop::kNow);
  // Both wait behind the run: the drop is carried out after the next job was submitted.
  runner.Submit(DropJob{kRunnersJob});
  runner.Submit(InspectDataset{kRunnersJob, world.source});
  brake.go_on.Open();
  REQUIRE(member.Ended().outcome == Outcome::kStopped);
  REQUIRE(member.node.Await<InspectDone>()->error.empty());
  CHECK(runner.heartbeat().job_id() == kRunnersJob.value());
}

TEST_CASE("JobRunner: why a dataset or a job cannot be used is said as a code") {
  World world;
  RunnerNode node("w1", world.folder.path(), world.checkpoints.channel(), {});
  v1::DataSource elsewhere = world.source;
  elsewhere.set_path("elsewhere");
  node.runner().Submit(InspectDataset{kRunnersJob, elsewhere});
  const auto inspected = node.Await<InspectDone>();
  REQUIRE(inspected);
  CHECK_FALSE(inspected->error.empty());
  CHECK(inspected->code == v1::FAILURE_CODE_DATASET);
  node.runner().Submit(InspectDataset{kRunnersJob, world.source});
  REQUIRE(node.Await<InspectDone>()->error.empty());
  v1::ResolvedJob other = world.resolved;
  other.mutable_result()->mutable_data()->mutable_files(0)->set_sha256("00");
  node.runner().Submit(PrepareJob{kRunnersJob, other});
  const auto prepared = node.Await<PrepareDone>();
  REQUIRE(prepared);
  CHECK_FALSE(prepared->error.empty());
  CHECK(prepared->code == v1::FAILURE_CODE_DATASET_DIFFERS);
}

// A device that compiles until nobody waits for it, while `hangs`.
struct SlowDevice {
  FakeHooks hooks() {
    FakeHooks hooks;
    hooks.on_core = [this](const CoreOptions& core) -> Status {
      if (!hangs)
        return core.stop.stop_requested() ? Internal("of the job before") : absl::OkStatus();
      reached.Open();
      constexpr std::chrono::seconds kLimit{30};
      return WaitForStop(core.stop, kLimit) ? absl::CancelledError("the job ends")
                                            : Internal("nobody ended it");
    };
    return hooks;
  }
  std::atomic<bool> hangs = true;
  Gate reached;
};

TEST_CASE(
    "JobRunner: a job that is dropped as it is prepared waits for no device, nor does the next") {
  World world;
  SlowDevice device;
  RunnerNode node("w1", world.folder.path(), world.checkpoints.channel(), device.hooks());
  const auto prepare = [&] {
    node.runner().Submit(InspectDataset{kRunnersJob, world.source});
    RING_CHECK(node.Await<InspectDone>()->error.empty(), "the dataset is there");
    node.runner().Submit(PrepareJob{kRunnersJob, world.resolved});
  };
  prepare();
  REQUIRE(device.reached.Await());
  node.runner().EndWaits();
  const auto ended = node.Await<PrepareDone>();
  REQUIRE(ended);
  CHECK(ended->error == "the job ends");
  device.hangs = false;
  node.runner().Submit(DropJob{kRunnersJob});
  prepare();
  const auto prepared = node.Await<PrepareDone>();
  REQUIRE(prepared);
  CHECK(prepared->error.empty());
}

TEST_CASE("JobRunner: devices that are lost are said behind the end of the job, not before") {
  World world;
  std::atomic<bool> lost = false;
  FakeHooks hooks;
  hooks.lost = [&]() -> Status {
    return lost ? Internal("shard: an illegal address") : absl::OkStatus();
  };
  Member member(&world, "w1", hooks);
  member.node.runner().Submit(DropJob{kRunnersJob});
  member.node.runner().Submit(InspectDataset{kRunnersJob, world.source});
  REQUIRE(member.node.Await<InspectDone>()->error.empty());
  lost = true;
  member.node.runner().Submit(PrepareJob{kRunnersJob, world.resolved});
  REQUIRE(member.node.Await<PrepareDone>());
  member.node.runner().Submit(DropJob{kRunnersJob});
  CHECK(member.node.Await<StopRequested>()->reason == "shard: an illegal address");
}

TEST_CASE("JobRunner: its stop ends what waits for a device") {
  World world;
  SlowDevice device;
  RunnerNode node("w1", world.folder.path(), world.checkpoints.channel(), device.hooks());
  node.runner().Submit(InspectDataset{kRunnersJob, world.source});
  REQUIRE(node.Await<InspectDone>()->error.empty());
  node.runner().Submit(PrepareJob{kRunnersJob, world.resolved});
  REQUIRE(device.reached.Await());
  node.runner().Stop();
  const auto ended = node.Await<PrepareDone>();
  REQUIRE(ended);
  CHECK(ended->error == "the job ends");
}

TEST_CASE("JobRunner: a job that is dropped waits for no device that is down, only for shards") {
  World world;
  Gate down;
  std::atomic<bool> device_is_down = false;
  std::stop_token stop;
  FakeHooks hooks;
  hooks.on_core = [&](const CoreOptions& core) {
    stop = core.stop;
    return absl::OkStatus();
  };
  hooks.outage = [&](const ShardInput& input, const GradientSink& sink) -> Status {
    if (!device_is_down || input.step != 2) return absl::OkStatus();
    sink.outage(Outage::kBegins);
    down.Open();
    const bool stopped = WaitForStop(stop, std::chrono::seconds(30));
    sink.outage(Outage::kEnds);
    return stopped ? absl::CancelledError("the job ends") : Internal("nobody ended it");
  };
  Brake brake(1);
  hooks.before_shard = brake.hooks().before_shard;
  Member member(&world, "w1", hooks);
  RunAll(StartOf(1, 0, member.digest, {{&member, {0, 1, 2, 3}}}), {&member});
  REQUIRE(brake.reached.Await());
  member.node.runner().EndWaits();
  CHECK_FALSE(stop.stop_requested());  // a shard ends by itself
  device_is_down = true;
  brake.go_on.Open();
  REQUIRE(down.Await());
  CHECK(member.node.runner().heartbeat().phase() == "restart");
  member.node.runner().Cancel("the job is dropped", RunStop::kNow);
  member.node.runner().EndWaits();
  const RunEnded ended = member.Ended();
  CHECK(ended.outcome == Outcome::kStopped);
  CHECK(ended.applied == 2);
}

TEST_CASE("JobRunner: a source that is gone is named") {
  World world;
  Member source(&world, "w1");
  Member before(&world, "w2");
  Member joiner(&world, "w3");
  Member after(&world, "w4");
  const v1::Start start =
      StartOf(1, 3, std::string(32, 'x'),
              {{&source, {0}}, {&before, {1}, false}, {&joiner, {2}, false}, {&after, {3}, false}});
  source.node.CutOff();
  // Of them the joiner alone has both neighbours, and its ring.
  RunAll(start, {&before, &joiner, &after});
  const RunEnded ended = joiner.Ended();
  CHECK(ended.outcome == Outcome::kPeerLost);
  CHECK(ended.peer == "w1");
}

TEST_CASE("JobRunner: a state is delivered as a checkpoint between runs") {
  World world;
  Brake brake(3);
  Member member(&world, "w1", brake.hooks());
  RunAll(StartOf(1, 0, member.digest, {{&member, {0, 1, 2, 3}}}), {&member});
  REQUIRE(brake.reached.Await());
  member.node.runner().Cancel("the last holder leaves", RunStop::kNow);
  brake.go_on.Open();
  REQUIRE(member.Ended().applied == 3);
  world.checkpoints.RefuseNext(2);  // what may pass is tried again
  member.node.runner().Submit(DeliverState{kRunnersJob});
  const auto delivered = member.node.Await<StateDelivered>();
  REQUIRE(delivered);
  CHECK(delivered->error.empty());
  CHECK(delivered->applied == 3);
  CHECK(world.checkpoints.Manifest(3).size() == 64);
}

}  // namespace
}  // namespace ringmaster::worker
