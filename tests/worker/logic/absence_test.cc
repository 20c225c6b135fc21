// What a worker does while the coordinator is away, and when it comes back; and how it leaves.
#include <catch2/catch.hpp>

#include "tests/worker/logic/logic_words.h"

namespace ringmaster::worker {
namespace {

std::vector<v1::WorkerMessage> AllSent(const Decision& decision) {
  std::vector<v1::WorkerMessage> sent;
  for (const Action& action : decision.actions) {
    if (const auto* send = std::get_if<SendMessage>(&action)) sent.push_back(send->message);
  }
  return sent;
}

// The session breaks and opens again: what is said behind Attached.
std::vector<v1::WorkerMessage> SaidAgain(WorkerLogic* logic) {
  (void)logic->Step(Disconnected{"broken"}, kNow);
  REQUIRE(AllSent(logic->Step(Connected{}, kNow)).size() == 1);
  return AllSent(logic->Step(Attached(3, true), kNow));
}

v1::Attach Reattach(WorkerLogic* logic) {
  (void)logic->Step(Disconnected{"broken"}, kNow);
  return Sent(logic->Step(Connected{}, kNow)).attach();
}

TEST_CASE("Absence: a run goes on, and attach says how far it is") {
  WorkerLogic logic = RunningLogic();
  CHECK(logic.Step(Disconnected{"broken"}, kNow).actions.empty());
  v1::Progress progress;
  progress.set_job_id("j1");
  progress.set_applied(7);
  CHECK(logic.Step(RunProgress{progress, false, "d7"}, kNow).actions.empty());
  const v1::Attach attach = Sent(logic.Step(Connected{}, kNow)).attach();
  CHECK(attach.job_id() == "j1");
  CHECK(attach.generation().counter() == 1);
  CHECK(attach.applied() == 7);
  CHECK(attach.digest() == "d7");
  REQUIRE(attach.known_shard_sha256_size() == 1);
  CHECK(attach.known_shard_sha256(0) == "aa");
  CHECK(logic.Step(Attached(3, true), kNow).actions.empty());
  // What the coordinator missed comes with the next progress, at once.
  progress.set_applied(8);
  CHECK(logic.Step(RunProgress{progress}, kNow).actions.size() == 1);
}

TEST_CASE("Absence: attach says by which class maps the state came about") {
  WorkerLogic logic = PreparedLogic();
  (void)logic.Step(Fence("j1", 1), kNow);
  FromCoordinator start = Start("j1", 1, 6);
  for (const uint64_t step : {0, 6}) {
    start.message.mutable_start()->add_class_maps()->set_step(step);
  }
  REQUIRE(Find<RunJob>(logic.Step(start, kNow)) != nullptr);
  (void)logic.Step(Disconnected{"broken"}, kNow);
  const v1::Attach attach = Sent(logic.Step(Connected{}, kNow)).attach();
  REQUIRE(attach.class_maps_size() == 2);
  CHECK(attach.class_maps(1).step() == 6);
}

v1::Metric MetricOf(v1::SampleSplit split, uint64_t step) {
  v1::Metric metric;
  metric.set_split(split);
  metric.set_name("loss");
  metric.set_step(step);
  metric.set_value(0.5);
  return metric;
}

RunProgress EpochEnd(uint64_t step, int metrics = 1) {
  RunProgress event;
  event.progress.set_job_id("j1");
  event.progress.set_applied(step);
  for (int i = 0; i < metrics; ++i) {
    *event.progress.add_lasting() = MetricOf(v1::SAMPLE_SPLIT_TRAIN, step);
  }
  *event.progress.add_lasting() = MetricOf(v1::SAMPLE_SPLIT_TEST, step);
  return event;
}

// `4` for training at step 4, `-4` for test.
std::vector<int> LastingIn(const std::vector<v1::WorkerMessage>& said) {
  std::vector<int> steps;
  for (const v1::WorkerMessage& message : said) {
    CHECK(message.progress().lasting_size() <= LastingMetrics::kMostInReport);
    for (const v1::Metric& metric : message.progress().lasting()) {
      const int step = static_cast<int>(metric.step());
      steps.push_back(metric.split() == v1::SAMPLE_SPLIT_TRAIN ? step : -step);
    }
  }
  return steps;
}

TEST_CASE("Absence: what the history keeps is told once a session, and whole after the run") {
  WorkerLogic logic = RunningLogic();
  const auto at = [](int ms) { return kNow + std::chrono::milliseconds(ms); };
  CHECK(LastingIn(AllSent(logic.Step(EpochEnd(4), at(0)))) == std::vector<int>{4, -4});
  CHECK(AllSent(logic.Step(EpochEnd(8), at(1))).empty());  // too soon
  CHECK(LastingIn(AllSent(logic.Step(EpochEnd(8), at(300)))) == std::vector<int>{8, -8});
  (void)logic.Step(Disconnected{"broken"}, at(301));
  CHECK(logic.Step(EpochEnd(12), at(302)).actions.empty());
  CHECK(logic.Step(Ended(Outcome::kFinished, 12), at(303)).actions.empty());
  const auto all = std::vector<int>{4, -4, 8, -8, 12, -12};
  std::vector<v1::WorkerMessage> said = SaidAgain(&logic);
  CHECK(LastingIn(said) == all);
  REQUIRE(said.size() == 2);
  CHECK(said[0].progress().applied() == 12);
  CHECK(said[1].has_job_finished());  // after all of them
  CHECK(LastingIn(SaidAgain(&logic)) == all);
}

TEST_CASE("Absence: many metrics go in several reports, those of a step in one") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(Disconnected{"broken"}, kNow);
  std::vector<int> all;
  for (uint64_t step = 1; step <= 20; ++step) {
    (void)logic.Step(EpochEnd(step, 50), kNow);
    all.insert(all.end(), 50, static_cast<int>(step));
    all.push_back(-static_cast<int>(step));
  }
  (void)logic.Step(Ended(Outcome::kFinished, 20), kNow);
  const auto said = SaidAgain(&logic);
  CHECK(said.size() == 5);  // with the end of the job
  CHECK(LastingIn(said) == all);
  for (const v1::WorkerMessage& message : said) {
    CHECK(message.progress().lasting_size() % 51 == 0);
  }
}

TEST_CASE("Absence: a job that is set back forgets the metrics of later steps") {
  WorkerLogic logic = RunningLogic();
  const auto at = [](int ms) { return kNow + std::chrono::milliseconds(ms); };
  (void)logic.Step(EpochEnd(4), at(0));
  (void)logic.Step(EpochEnd(8), at(300));
  (void)logic.Step(Fence("j1", 2), at(301));
  (void)logic.Step(Ended(Outcome::kStopped, 8), at(302));
  (void)logic.Step(Start("j1", 2, 6), at(303));
  CHECK(LastingIn(AllSent(logic.Step(EpochEnd(8), at(304)))) == std::vector<int>{4, -4, 8, -8});
}

TEST_CASE("Absence: a run that is fenced is not said to go on") {
  for (const Boundary boundary : {Boundary::kNo, Boundary::kYes}) {
    WorkerLogic logic = RunningLogic();
    (void)logic.Step(Fence("j1", 2, boundary), kNow);
    v1::Attach attach = Reattach(&logic);
    CHECK(attach.job_id() == "j1");
    CHECK_FALSE(attach.has_generation());
    (void)logic.Step(Ended(Outcome::kStopped, 9), kNow);
    attach = Reattach(&logic);
    CHECK_FALSE(attach.has_generation());
    CHECK(attach.applied() == 9);
  }
}

TEST_CASE("Absence: snapshots are told at once, in every Attach, and once more behind Attached") {
  WorkerLogic logic = RunningLogic();
  const auto told = [](const v1::WorkerMessage& message) {
    const v1::Snapshot& snapshot = message.snapshot_taken().snapshot();
    return std::to_string(snapshot.step()) + snapshot.manifest_sha256();
  };
  const auto taken = logic.Step(SnapshotHeld{JobId("j1"), 5, "", {5}}, kNow);
  CHECK(told(Sent(taken)) == "5");
  CHECK(Sent(taken).snapshot_taken().generation().counter() == 1);
  CHECK(told(Sent(logic.Step(SnapshotHeld{JobId("j1"), 5, "aa", {5}}, kNow))) == "5aa");
  // The coordinator is away.
  (void)logic.Step(Disconnected{"lost"}, kNow);
  CHECK(logic.Step(SnapshotHeld{JobId("j1"), 6, "", {5, 6}}, kNow).actions.empty());
  const v1::WorkerMessage message = Sent(logic.Step(Connected{}, kNow));
  REQUIRE(message.attach().snapshots_size() == 2);
  CHECK(message.attach().snapshots(0).manifest_sha256() == "aa");
  CHECK(message.attach().snapshots(1).step() == 6);
  CHECK(message.attach().snapshots(1).manifest_sha256().empty());
  CHECK(logic.Step(SnapshotHeld{JobId("j1"), 6, "bb", {5, 6}}, kNow).actions.empty());
  const auto again = AllSent(logic.Step(Attached(3, true), kNow));
  REQUIRE(again.size() == 2);
  CHECK(told(again[0]) == "5aa");
  CHECK(told(again[1]) == "6bb");
  // Only the newest few are remembered, and none of steps that a rewind takes back.
  for (uint64_t step = 7; step <= 18; ++step) {
    (void)logic.Step(SnapshotHeld{JobId("j1"), step, "cc", {step}}, kNow);
  }
  (void)logic.Step(Fence("j1", 2), kNow);
  (void)logic.Step(Ended(Outcome::kStopped, 18), kNow);
  const auto started = AllSent(logic.Step(Start("j1", 2, 9), kNow));
  REQUIRE(started.size() == 2);  // the coordinator forgot them, if its ring went back
  CHECK(told(started[0]) == "8cc");
  CHECK(told(started[1]) == "9cc");
  CHECK(started[0].snapshot_taken().generation().counter() == 2);
  (void)logic.Step(Disconnected{"lost"}, kNow);
  const v1::WorkerMessage later = Sent(logic.Step(Connected{}, kNow));
  REQUIRE(later.attach().snapshots_size() == 2);
  CHECK(later.attach().snapshots(0).step() == 8);
  CHECK(later.attach().snapshots(1).step() == 9);
}

TEST_CASE("Absence: a copy that is held is told however many came after it") {
  WorkerLogic logic = RunningLogic();
  for (uint64_t step = 1; step <= 20; ++step) {
    const auto sent = Sent(logic.Step(SnapshotHeld{JobId("j1"), step, "aa", {1, step}}, kNow));
    CHECK(sent.snapshot_taken().held_size() == 2);
  }
  (void)logic.Step(Disconnected{"lost"}, kNow);
  const v1::WorkerMessage message = Sent(logic.Step(Connected{}, kNow));
  REQUIRE(message.attach().snapshots_size() == 12);
  CHECK(message.attach().snapshots(0).step() == 1);
  CHECK(message.attach().snapshots(1).step() == 10);
  CHECK(message.attach().snapshots(11).step() == 20);
}

TEST_CASE("Absence: nothing but Attach is sent before Attached") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(Disconnected{"broken"}, kNow);
  CHECK(logic.Step(RunJoined{JobId("j1"), {3, 1}, 0}, kNow).actions.empty());
  REQUIRE(AllSent(logic.Step(Connected{}, kNow)).size() == 1);
  CHECK(logic.Step(Ended(Outcome::kFailed, 9), kNow).actions.empty());
  const auto said = AllSent(logic.Step(Attached(3, true), kNow));
  REQUIRE(said.size() == 2);
  CHECK(said[0].has_joined());
  CHECK(said[1].job_failed().step() == 9);
}

TEST_CASE("Absence: how a run ended is said in every session until it is fenced") {
  for (const Outcome outcome : {Outcome::kFinished, Outcome::kFailed, Outcome::kPeerLost}) {
    WorkerLogic logic = RunningLogic();
    const Decision ended = logic.Step(Ended(outcome, 9), kNow);
    for (int session = 0; session < 2; ++session) {
      const auto said = SaidAgain(&logic);
      REQUIRE(said.size() == 1);
      CHECK(said[0].SerializeAsString() == Sent(ended).SerializeAsString());
    }
    (void)logic.Step(Fence("j1", 2), kNow);
    CHECK(SaidAgain(&logic).empty());
  }
}

TEST_CASE("Absence: a suspicion is said again while the run goes on") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(PeerSuspected{JobId("j1"), {3, 1}, 7, "w2", "silent"}, kNow);
  (void)logic.Step(PeerSuspected{JobId("j1"), {3, 1}, 7, "w3", "silent"}, kNow);
  const auto said = SaidAgain(&logic);
  REQUIRE(said.size() == 2);
  CHECK(said[0].suspicion().peer() == "w2");
  CHECK(said[1].suspicion().peer() == "w3");
}

TEST_CASE("Absence: that a job stopped, or its state is saved, is said again") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(Cancel("j1"), kNow);
  (void)logic.Step(Ended(Outcome::kStopped, 9), kNow);
  (void)logic.Step(StateDelivered{JobId("j1"), 9, ""}, kNow);
  const auto said = SaidAgain(&logic);
  REQUIRE(said.size() == 2);
  CHECK(said[0].state_saved().applied() == 9);
  CHECK(said[1].job_stopped().applied() == 9);
}

CheckpointDropped Dropped(uint64_t step) { return {JobId("j1"), step, "it is away"}; }

TEST_CASE(
    "Absence: checkpoints that were dropped meanwhile are named when the coordinator is back") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(Disconnected{"broken"}, kNow);
  for (const uint64_t step : {10U, 20U, 30U}) {
    CHECK(logic.Step(Dropped(step), kNow).actions.empty());
  }
  (void)logic.Step(Connected{}, kNow);
  const auto said = AllSent(logic.Step(Attached(3, true), kNow));
  REQUIRE(said.size() == 1);
  const v1::CheckpointsDropped& dropped = said[0].checkpoints_dropped();
  CHECK(dropped.job_id() == "j1");
  CHECK(dropped.count() == 3);
  CHECK(dropped.first_step() == 10);
  CHECK(dropped.last_step() == 30);
  CHECK(dropped.reason() == "it is away");
  CHECK(SaidAgain(&logic).empty());
}

TEST_CASE("WorkerLogic: dropped checkpoints are told at most every ten seconds, and at the end") {
  WorkerLogic logic = RunningLogic();
  const v1::CheckpointsDropped first = Sent(logic.Step(Dropped(10), kNow)).checkpoints_dropped();
  CHECK(first.count() == 1);
  CHECK(first.last_step() == 10);
  const auto later = kNow + std::chrono::seconds(9);
  CHECK(logic.Step(Dropped(20), later).actions.empty());
  CHECK(logic.Step(Dropped(30), later).actions.empty());
  const auto again = kNow + std::chrono::seconds(10);
  const v1::CheckpointsDropped more = Sent(logic.Step(Dropped(40), again)).checkpoints_dropped();
  CHECK(more.count() == 3);
  CHECK(more.first_step() == 20);
  CHECK(more.last_step() == 40);
  CHECK(logic.Step(Dropped(50), again).actions.empty());
  const auto said = AllSent(logic.Step(Ended(Outcome::kFinished, 60), again));
  REQUIRE(said.size() == 2);
  CHECK(said[0].checkpoints_dropped().last_step() == 50);
  CHECK(said[1].has_job_finished());
}

TEST_CASE("Absence: what was said before a generation is not said again in it") {
  WorkerLogic logic = PreparedLogic();
  (void)logic.Step(Fence("j1", 1), kNow);
  (void)logic.Step(StateDelivered{JobId("j1"), 0, ""}, kNow);
  (void)logic.Step(Start("j1", 1, 0), kNow);
  CHECK(SaidAgain(&logic).empty());
}

TEST_CASE("Absence: a coordinator that does not resume the job hears nothing of it") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(Ended(Outcome::kFailed, 9), kNow);
  (void)logic.Step(Disconnected{"broken"}, kNow);
  (void)logic.Step(Connected{}, kNow);
  (void)logic.Step(Attached(4, false), kNow);
  const Decision attached = logic.Step(TermStored{4, ""}, kNow);
  CHECK(AllSent(attached).empty());
  CHECK(Find<DropJob>(attached) != nullptr);
}

TEST_CASE("Absence: a job that is not prepared yet is dropped, and not named at attach") {
  WorkerLogic logic = AttachedLogic();
  (void)logic.Step(Inspect("j1"), kNow);
  CHECK(Reattach(&logic).job_id().empty());
  (void)logic.Step(Attached(3, false), kNow);
  // The job thread is still busy: the next job waits for it.
  CHECK(logic.Step(Inspect("j2"), kNow).actions.empty());
  const Decision done = logic.Step(InspectDone{JobId("j1"), {}, ""}, kNow);
  REQUIRE(done.actions.size() == 2);
  CHECK(std::get<DropJob>(done.actions[0]).job == JobId("j1"));
  CHECK(std::get<InspectDataset>(done.actions[1]).job == JobId("j2"));
}

TEST_CASE("Absence: a job whose run ends because it was released is not named at attach") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(RunJoined{JobId("j1"), {3, 1}, 0}, kNow);
  (void)logic.Step(Release("j1"), kNow);
  for (const bool resume : {true, false}) {
    CHECK(Reattach(&logic).job_id().empty());
    CHECK(logic.Step(Attached(3, resume), kNow).actions.empty());
  }
  CHECK(logic.Step(Inspect("j2"), kNow).actions.empty());
  const Decision ended = logic.Step(Ended(Outcome::kStopped, 9), kNow);
  REQUIRE(ended.actions.size() == 2);
  CHECK(std::get<DropJob>(ended.actions[0]).job == JobId("j1"));
  CHECK(std::get<InspectDataset>(ended.actions[1]).job == JobId("j2"));
}

TEST_CASE("Absence: a job that waited for another one to go is forgotten with its session") {
  WorkerLogic logic = AttachedLogic();
  (void)logic.Step(Inspect("j1"), kNow);
  (void)logic.Step(Release("j1"), kNow);
  (void)logic.Step(Inspect("j2"), kNow);
  (void)logic.Step(Disconnected{"broken"}, kNow);
  CHECK(logic.Step(InspectDone{JobId("j1"), {}, ""}, kNow).actions.size() == 1);
  CHECK(logic.job().empty());
}

TEST_CASE("Absence: a job that waited for another one to go can be released before it begins") {
  WorkerLogic logic = AttachedLogic();
  (void)logic.Step(Inspect("j1"), kNow);
  (void)logic.Step(Release("j1"), kNow);
  (void)logic.Step(Inspect("j2"), kNow);
  CHECK(logic.Step(Release("j2"), kNow).actions.empty());
  CHECK(logic.Step(InspectDone{JobId("j1"), {}, ""}, kNow).actions.size() == 1);
  CHECK(logic.job().empty());
}

TEST_CASE("Absence: a job that could not be prepared is not named either") {
  WorkerLogic logic = AttachedLogic();
  (void)logic.Step(Inspect("j1"), kNow);
  (void)logic.Step(InspectDone{JobId("j1"), {}, ""}, kNow);
  (void)logic.Step(Prepare("j1"), kNow);
  (void)logic.Step(PrepareDone{JobId("j1"), {}, "", "no memory"}, kNow);
  CHECK(logic.Step(Fence("j1", 1), kNow).actions.empty());
  const Decision lost = logic.Step(Disconnected{"broken"}, kNow);
  CHECK(Find<DropJob>(lost) != nullptr);
  CHECK(Sent(logic.Step(Connected{}, kNow)).attach().job_id().empty());
}

TEST_CASE("Leaving: a worker says so, goes on until it is released, and exits with its session") {
  WorkerLogic logic = RunningLogic();
  const Decision decision = logic.Step(StopRequested{"SIGTERM"}, kNow);
  REQUIRE(decision.actions.size() == 1);
  CHECK(Sent(decision).leaving().reason() == "SIGTERM");
  const Decision fenced = logic.Step(Fence("j1", 2, Boundary::kYes), kNow);
  CHECK(Find<CancelRun>(fenced)->when == RunStop::kAtBoundary);
  CHECK(Sent(logic.Step(Ended(Outcome::kStopped, 5), kNow)).fence_ack().applied() == 5);
  const Decision release = logic.Step(Release("j1"), kNow);
  CHECK(Find<DropJob>(release) != nullptr);
  CHECK(Find<Exit>(release) == nullptr);
  CHECK(Sent(logic.Step(Inspect("j2"), kNow)).inspected().error() == "the worker is stopping");
  CHECK(Find<Exit>(logic.Step(Disconnected{"ended"}, kNow)) != nullptr);
}

TEST_CASE("Leaving: a worker that was in no ring yet exits as its session ends") {
  WorkerLogic free = AttachedLogic();
  CHECK(Find<Exit>(free.Step(StopRequested{"SIGTERM"}, kNow)) == nullptr);
  CHECK(Find<Exit>(free.Step(Disconnected{"ended"}, kNow)) != nullptr);
  WorkerLogic prepared = PreparedLogic();
  CHECK(Sent(prepared.Step(StopRequested{"SIGTERM"}, kNow)).has_leaving());
  CHECK(Find<Exit>(prepared.Step(Disconnected{"ended"}, kNow)) != nullptr);
}

TEST_CASE("Leaving: while the coordinator is away the ring goes on; later it is told") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(Disconnected{"broken"}, kNow);
  CHECK(logic.Step(StopRequested{"SIGTERM"}, kNow).actions.empty());
  (void)logic.Step(Connected{}, kNow);
  CHECK(logic.Step(Disconnected{"refused"}, kNow).actions.empty());
  (void)logic.Step(Connected{}, kNow);
  const auto said = AllSent(logic.Step(Attached(3, true), kNow));
  REQUIRE(said.size() == 1);
  CHECK(said[0].leaving().reason() == "SIGTERM");
  // And again, should that session break.
  CHECK(SaidAgain(&logic).back().has_leaving());
}

TEST_CASE("Leaving: without a job and without a coordinator there is nobody to wait for") {
  WorkerLogic logic(Self(), 0);
  CHECK(Find<Exit>(logic.Step(StopRequested{"SIGTERM"}, kNow)) != nullptr);
}

TEST_CASE("Leaving: asked a second time it ends the run and exits at once") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(StopRequested{"SIGTERM"}, kNow);
  const Decision second = logic.Step(StopRequested{"SIGTERM"}, kNow);
  REQUIRE(Find<CancelRun>(second) != nullptr);
  CHECK(Find<CancelRun>(second)->when == RunStop::kNow);
  CHECK(Find<Exit>(second) != nullptr);
  // Nobody but its user wanted that: the job must not fail because of it.
  CHECK(logic.Step(Ended(Outcome::kStopped, 5), kNow).actions.empty());
}

}  // namespace
}  // namespace ringmaster::worker
