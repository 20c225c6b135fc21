#include "worker/logic/worker_logic.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "tests/worker/logic/logic_words.h"

namespace ringmaster::worker {
namespace {

TEST_CASE("WorkerLogic: a session begins with attach and carries the job that it still holds") {
  WorkerLogic logic = RunningLogic();
  v1::Progress progress;
  progress.set_job_id("j1");
  progress.set_applied(7);
  (void)logic.Step(RunProgress{progress, false, "d7"}, kNow + std::chrono::seconds(1));
  (void)logic.Step(Disconnected{"broken"}, kNow);
  const Decision decision = logic.Step(Connected{}, kNow);
  const v1::Attach& attach = Sent(decision).attach();
  CHECK(attach.name() == "w1");
  CHECK(attach.job_id() == "j1");
  CHECK(attach.applied() == 7);
  CHECK(attach.digest() == "d7");
  CHECK(attach.highest_term() == 3);
  CHECK(attach.generation().counter() == 1);
}

TEST_CASE("WorkerLogic: a coordinator of an older term is not obeyed") {
  WorkerLogic logic(Self(), 5);
  (void)logic.Step(Connected{}, kNow);
  const Decision decision = logic.Step(Attached(4), kNow);
  REQUIRE(Find<CloseSession>(decision) != nullptr);
  CHECK_FALSE(logic.attached());
  CHECK(logic.Step(Inspect("j1"), kNow).actions.empty());
}

TEST_CASE("WorkerLogic: heartbeats come as often as the coordinator says, in its session alone") {
  WorkerLogic logic(Self(), 0);
  CHECK_FALSE(logic.heartbeat_interval().has_value());
  FromCoordinator attached = Attached(1);
  attached.message.mutable_attached()->set_heartbeat_ms(75);
  (void)logic.Step(attached, kNow);
  CHECK_FALSE(logic.heartbeat_interval().has_value());
  (void)logic.Step(TermStored{1, ""}, kNow);
  CHECK(logic.heartbeat_interval() == std::chrono::milliseconds(75));
  (void)logic.Step(Disconnected{"broken"}, kNow);
  CHECK_FALSE(logic.heartbeat_interval().has_value());
  attached.message.mutable_attached()->set_heartbeat_ms(0);
  (void)logic.Step(attached, kNow);
  CHECK(logic.heartbeat_interval() == std::chrono::milliseconds(10));
}

TEST_CASE("WorkerLogic: a new term is stored before anything else happens in it") {
  WorkerLogic logic(Self(), 5);
  const Decision decision = logic.Step(Attached(6), kNow);
  REQUIRE(decision.actions.size() == 1);
  CHECK(std::get<SaveTerm>(decision.actions[0]).term == 6);
  CHECK_FALSE(logic.attached());
  CHECK(logic.Step(Inspect("j1"), kNow).actions.empty());
  CHECK(logic.Step(TermStored{5, ""}, kNow).actions.empty());  // another one
  CHECK_FALSE(logic.attached());
  const Decision stored = logic.Step(TermStored{6, ""}, kNow);
  CHECK(logic.attached());
  REQUIRE(Find<InspectDataset>(stored) != nullptr);  // what was said meanwhile
  CHECK(Find<InspectDataset>(stored)->job == JobId("j1"));
}

TEST_CASE("WorkerLogic: a term that cannot be stored is not obeyed, and its session ends") {
  WorkerLogic logic(Self(), 5);
  (void)logic.Step(Connected{}, kNow);
  (void)logic.Step(Attached(6), kNow);
  (void)logic.Step(Inspect("j1"), kNow);
  const Decision failed = logic.Step(TermStored{6, "the disk is full"}, kNow);
  REQUIRE(failed.actions.size() == 1);
  CHECK(Find<CloseSession>(failed) != nullptr);
  CHECK_THAT(failed.reason, Catch::Contains("the disk is full"));
  CHECK_FALSE(logic.attached());
  CHECK(logic.job().empty());
  // The next session tries again, with the term that is durable.
  (void)logic.Step(Disconnected{"closed"}, kNow);
  CHECK(Sent(logic.Step(Connected{}, kNow)).attach().highest_term() == 5);
  CHECK(Find<SaveTerm>(logic.Step(Attached(6), kNow)) != nullptr);
  (void)logic.Step(TermStored{6, ""}, kNow);
  CHECK(logic.attached());
}

TEST_CASE("WorkerLogic: a term is not obeyed when a higher one was stored before it") {
  WorkerLogic logic(Self(), 4);
  (void)logic.Step(Connected{}, kNow);
  (void)logic.Step(Attached(6), kNow);  // the disk is slow
  (void)logic.Step(Disconnected{"broken"}, kNow);
  (void)logic.Step(Connected{}, kNow);
  (void)logic.Step(Attached(5), kNow);  // of an older store
  CHECK(logic.Step(TermStored{6, ""}, kNow).actions.empty());
  const Decision stored = logic.Step(TermStored{5, ""}, kNow);
  REQUIRE(Find<CloseSession>(stored) != nullptr);
  CHECK_THAT(Find<CloseSession>(stored)->reason, Catch::Contains("lower than 6"));
  CHECK_FALSE(logic.attached());
}

TEST_CASE("WorkerLogic: a session that ends while its term is stored leaves nothing behind") {
  WorkerLogic logic(Self(), 5);
  (void)logic.Step(Connected{}, kNow);
  (void)logic.Step(Attached(6), kNow);
  (void)logic.Step(Inspect("j1"), kNow);
  (void)logic.Step(Disconnected{"broken"}, kNow);
  CHECK(logic.Step(TermStored{6, ""}, kNow).actions.empty());
  CHECK_FALSE(logic.attached());
  CHECK(Sent(logic.Step(Connected{}, kNow)).attach().highest_term() == 6);
  CHECK(logic.Step(Attached(6), kNow).actions.empty());  // it is durable
  CHECK(logic.attached());
}

TEST_CASE("WorkerLogic: who may have the data, and the ticket for them, come with an inspection") {
  WorkerLogic logic = AttachedLogic();
  FromCoordinator inspect = Inspect("j1");
  inspect.message.mutable_inspect()->set_data_ticket("ticket");
  inspect.message.mutable_inspect()->add_peers()->set_name("b");
  const Decision decision = logic.Step(inspect, kNow);
  REQUIRE(Find<InspectDataset>(decision) != nullptr);
  CHECK(Find<InspectDataset>(decision)->data_ticket == "ticket");
  REQUIRE(Find<InspectDataset>(decision)->peers.size() == 1);
  CHECK(Find<InspectDataset>(decision)->peers[0].name() == "b");
}

TEST_CASE("WorkerLogic: a release ends what an inspection waits for, and says whose data differ") {
  for (const bool differs : {true, false}) {
    WorkerLogic logic = AttachedLogic();
    (void)logic.Step(Inspect("j1"), kNow);
    FromCoordinator release = Release("j1");
    release.message.mutable_release()->set_data_differs(differs);
    const Decision decision = logic.Step(release, kNow);
    REQUIRE(Find<EndInspection>(decision) != nullptr);
    CHECK(Find<EndInspection>(decision)->job == JobId("j1"));
    CHECK(Find<DropJob>(decision) == nullptr);
    const Decision done = logic.Step(InspectDone{JobId("j1"), {}, "it was stopped"}, kNow);
    REQUIRE(Find<DropJob>(done) != nullptr);
    CHECK(Find<DropJob>(done)->data_differs == differs);
    CHECK(Find<SendMessage>(done) == nullptr);
  }
}

TEST_CASE("WorkerLogic: a release ends what a preparation, or a run, waits for on its devices") {
  WorkerLogic logic = AttachedLogic();
  (void)logic.Step(Inspect("j1"), kNow);
  (void)logic.Step(InspectDone{JobId("j1"), {}, ""}, kNow);
  (void)logic.Step(Prepare("j1"), kNow);
  const Decision preparing = logic.Step(Release("j1"), kNow);
  REQUIRE(Find<EndWaits>(preparing) != nullptr);
  CHECK(Find<EndWaits>(preparing)->job == JobId("j1"));
  CHECK(Find<DropJob>(preparing) == nullptr);
  CHECK(Find<DropJob>(logic.Step(PrepareDone{JobId("j1"), {}, "", "it was stopped"}, kNow)) !=
        nullptr);

  WorkerLogic prepared = PreparedLogic();
  (void)prepared.Step(Fence("j1", 1), kNow);
  REQUIRE(Find<RunJob>(prepared.Step(Start("j1", 1, 0), kNow)) != nullptr);
  // A ring that is formed anew leaves them alone.
  CHECK(Find<EndWaits>(prepared.Step(Fence("j1", 2), kNow)) == nullptr);
  CHECK(Find<EndWaits>(prepared.Step(Release("j1"), kNow)) != nullptr);

  WorkerLogic idle = PreparedLogic();
  CHECK(Find<EndWaits>(idle.Step(Release("j1"), kNow)) == nullptr);
}

TEST_CASE("WorkerLogic: who joins a job that runs makes room for its state when it prepares") {
  for (const bool joins : {false, true}) {
    WorkerLogic logic = AttachedLogic();
    (void)logic.Step(Inspect("j1"), kNow);
    (void)logic.Step(InspectDone{JobId("j1"), {}, ""}, kNow);
    FromCoordinator prepare = Prepare("j1");
    prepare.message.mutable_prepare()->set_joins(joins);
    const Decision decision = logic.Step(prepare, kNow);
    REQUIRE(Find<PrepareJob>(decision) != nullptr);
    CHECK(Find<PrepareJob>(decision)->joins == joins);
  }
}

TEST_CASE("WorkerLogic: it serves one job at a time") {
  WorkerLogic logic = PreparedLogic();
  const Decision decision = logic.Step(Inspect("j2"), kNow);
  CHECK(Sent(decision).inspected().job_id() == "j2");
  CHECK(Sent(decision).inspected().error() == "the worker still holds job j1");
  CHECK(Sent(decision).inspected().code() == v1::FAILURE_CODE_UNSPECIFIED);
}

TEST_CASE("WorkerLogic: why it cannot go on is told as a code, beside the text") {
  WorkerLogic logic = AttachedLogic();
  (void)logic.Step(Inspect("j1"), kNow);
  InspectDone inspected{JobId("j1"), {}, "there is no such folder"};
  inspected.code = v1::FAILURE_CODE_DATASET;
  CHECK(Sent(logic.Step(inspected, kNow)).inspected().code() == v1::FAILURE_CODE_DATASET);
  (void)logic.Step(Prepare("j1"), kNow);
  PrepareDone prepared{JobId("j1"), {}, "", "no room"};
  prepared.code = v1::FAILURE_CODE_MEMORY;
  CHECK(Sent(logic.Step(prepared, kNow)).prepared().code() == v1::FAILURE_CODE_MEMORY);
  WorkerLogic running = RunningLogic();
  RunEnded ended = Ended(Outcome::kFailed, 3);
  ended.reason = "step 3: the loss is too large";
  ended.code = v1::FAILURE_CODE_NOT_FINITE;
  const v1::JobFailed failed = Sent(running.Step(ended, kNow)).job_failed();
  CHECK(failed.code() == v1::FAILURE_CODE_NOT_FINITE);
  CHECK(failed.reason() == ended.reason);
}

TEST_CASE("WorkerLogic: an idle worker acknowledges a fence at once, an old fence never") {
  WorkerLogic logic = PreparedLogic();
  const Decision first = logic.Step(Fence("j1", 2), kNow);
  CHECK(Sent(first).fence_ack().generation().counter() == 2);
  CHECK(Sent(first).fence_ack().digest() == "d0");
  CHECK(logic.Step(Fence("j1", 1), kNow).actions.empty());
}

TEST_CASE("WorkerLogic: a fence that comes again is acknowledged again until it started") {
  WorkerLogic logic = PreparedLogic();
  (void)logic.Step(Fence("j1", 2), kNow);
  CHECK(Sent(logic.Step(Fence("j1", 2), kNow)).fence_ack().generation().counter() == 2);
  (void)logic.Step(Start("j1", 2, 0), kNow);
  CHECK(logic.Step(Fence("j1", 2), kNow).actions.empty());
}

TEST_CASE("WorkerLogic: a running worker stops applying before it acknowledges a fence") {
  WorkerLogic logic = RunningLogic();
  const Decision fenced = logic.Step(Fence("j1", 2), kNow);
  REQUIRE(Find<CancelRun>(fenced) != nullptr);
  CHECK(Find<SendMessage>(fenced) == nullptr);
  const Decision ended = logic.Step(Ended(Outcome::kStopped, 9), kNow);
  CHECK(Sent(ended).fence_ack().applied() == 9);
  CHECK(Sent(ended).fence_ack().digest() == "d9");
}

TEST_CASE("WorkerLogic: only the generation fenced last can start, whatever state it needs") {
  WorkerLogic logic = PreparedLogic();
  (void)logic.Step(Fence("j1", 2), kNow);
  CHECK(logic.Step(Start("j1", 1, 0), kNow).actions.empty());
  CHECK(logic.Step(Start("j1", 3, 0), kNow).actions.empty());
  const Decision behind = logic.Step(Start("j1", 2, 4), kNow);
  REQUIRE(Find<RunJob>(behind) != nullptr);
  CHECK(Find<RunJob>(behind)->start.start_step() == 4);
}

TEST_CASE("WorkerLogic: cancel of a run is answered when the step loop has returned") {
  WorkerLogic logic = RunningLogic();
  const Decision cancel = logic.Step(Cancel("j1"), kNow);
  REQUIRE(Find<CancelRun>(cancel) != nullptr);
  CHECK(Find<SendMessage>(cancel) == nullptr);
  const Decision ended = logic.Step(Ended(Outcome::kStopped, 5), kNow);
  CHECK(Sent(ended).job_stopped().applied() == 5);
  const Decision release = logic.Step(Release("j1"), kNow);
  REQUIRE(Find<DropJob>(release) != nullptr);
  CHECK(logic.job().empty());
}

TEST_CASE("WorkerLogic: a job released while it runs is dropped when the step loop has returned") {
  WorkerLogic logic = RunningLogic();
  const Decision release = logic.Step(Release("j1"), kNow);
  CHECK(Find<CancelRun>(release) != nullptr);
  CHECK(Find<DropJob>(release) == nullptr);
  CHECK(logic.Step(Cancel("j1"), kNow).actions.empty());
  CHECK(logic.Step(Fence("j1", 2), kNow).actions.empty());
  CHECK(Find<DropJob>(logic.Step(Ended(Outcome::kStopped, 5), kNow)) != nullptr);
  CHECK(logic.job().empty());
}

TEST_CASE("WorkerLogic: before its first generation a job may be prepared anew, for another map") {
  WorkerLogic logic = PreparedLogic();
  const Decision again = logic.Step(Prepare("j1"), kNow);
  CHECK(Find<PrepareJob>(again) != nullptr);
  CHECK(logic.Step(Prepare("j1"), kNow).actions.empty());  // it is at it
  PrepareDone prepared{JobId("j1"), {"aa"}, "e0", "", 0.25};
  prepared.follows = true;
  const Decision done = logic.Step(prepared, kNow);
  CHECK(Sent(done).prepared().digest() == "e0");
  CHECK(Sent(done).prepared().follows());
  CHECK(Sent(done).prepared().known_shard_seconds() == 0.25);
  WorkerLogic running = RunningLogic();
  CHECK(running.Step(Prepare("j1"), kNow).actions.empty());
}

TEST_CASE("WorkerLogic: a job released while it is prepared is dropped when that returns") {
  WorkerLogic logic = AttachedLogic();
  (void)logic.Step(Inspect("j1"), kNow);
  CHECK(Find<DropJob>(logic.Step(Release("j1"), kNow)) == nullptr);
  const Decision done = logic.Step(InspectDone{JobId("j1"), {}, ""}, kNow);
  CHECK(Find<DropJob>(done) != nullptr);
  CHECK(Find<SendMessage>(done) == nullptr);
  CHECK(logic.job().empty());
}

TEST_CASE("WorkerLogic: a job that the coordinator does not resume is dropped at attach") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(Disconnected{"broken"}, kNow);
  (void)logic.Step(Connected{}, kNow);
  (void)logic.Step(Attached(4, false), kNow);
  const Decision attached = logic.Step(TermStored{4, ""}, kNow);
  CHECK(Find<CancelRun>(attached) != nullptr);
  CHECK(Find<DropJob>(logic.Step(Ended(Outcome::kStopped, 5), kNow)) != nullptr);
}

TEST_CASE("WorkerLogic: a lost neighbour is reported as a suspicion that names it") {
  WorkerLogic logic = RunningLogic();
  RunEnded ended = Ended(Outcome::kPeerLost, 12);
  ended.peer = "w2";
  ended.reason = "connection reset";
  const Decision decision = logic.Step(ended, kNow);
  const v1::Suspicion& suspicion = Sent(decision).suspicion();
  CHECK(suspicion.peer() == "w2");
  CHECK(suspicion.step() == 12);
  CHECK(suspicion.reason() == "connection reset");
}

TEST_CASE("WorkerLogic: a phase of starting is told at once; of a job that is gone it is not") {
  WorkerLogic logic = AttachedLogic();
  (void)logic.Step(Inspect("j1"), kNow);
  const Decision decision = logic.Step(PhaseChanged{JobId("j1"), "graph", 1.5}, kNow);
  const v1::PhaseEntered& entered = Sent(decision).phase_entered();
  CHECK(entered.job_id() == "j1");
  CHECK(entered.phase() == "graph");
  CHECK(entered.seconds() == 1.5);
  CHECK(logic.Step(PhaseChanged{JobId("j2"), "graph", 0}, kNow).actions.empty());
}

TEST_CASE("WorkerLogic: progress is sent at most four times a second") {
  WorkerLogic logic = RunningLogic();
  v1::Progress progress;
  progress.set_job_id("j1");
  const Time start = kNow + std::chrono::seconds(10);
  CHECK(logic.Step(RunProgress{progress}, start).actions.size() == 1);
  CHECK(logic.Step(RunProgress{progress}, start + std::chrono::milliseconds(100)).actions.empty());
  CHECK(logic.Step(RunProgress{progress}, start + std::chrono::milliseconds(250)).actions.size() ==
        1);
}

TEST_CASE(
    "WorkerLogic: an evaluation is told soon after other progress, but not thousands a second") {
  WorkerLogic logic = RunningLogic();
  v1::Progress progress;
  progress.set_job_id("j1");
  const Time start = kNow + std::chrono::seconds(10);
  const auto at = [&](int ms) { return start + std::chrono::milliseconds(ms); };
  CHECK(logic.Step(RunProgress{progress}, at(0)).actions.size() == 1);
  CHECK(logic.Step(RunProgress{progress}, at(30)).actions.empty());
  CHECK(logic.Step(RunProgress{progress, true}, at(31)).actions.size() == 1);
  CHECK(logic.Step(RunProgress{progress, true}, at(32)).actions.empty());
  CHECK(logic.Step(RunProgress{progress}, at(270)).actions.empty());
  CHECK(logic.Step(RunProgress{progress}, at(281)).actions.size() == 1);
}

TEST_CASE("WorkerLogic: progress that was held back goes out before the end of the run") {
  WorkerLogic logic = RunningLogic();
  v1::Progress progress;
  progress.set_job_id("j1");
  const Time start = kNow + std::chrono::seconds(10);
  (void)logic.Step(RunProgress{progress}, start);
  progress.add_metrics()->set_value(0.75);
  (void)logic.Step(RunProgress{progress}, start + std::chrono::milliseconds(1));
  const Decision ended = logic.Step(Ended(Outcome::kFinished, 9), kNow);
  REQUIRE(ended.actions.size() == 2);
  CHECK(std::get<SendMessage>(ended.actions[0]).message.progress().metrics(0).value() == 0.75);
  CHECK(std::get<SendMessage>(ended.actions[1]).message.has_job_finished());
}

// ---- digests ------------------------------------------------------------------------------------

RunProgress Applied(uint64_t step) {
  RunProgress event;
  event.progress.set_job_id("j1");
  event.progress.set_applied(step);
  event.digest = "d" + std::to_string(step);
  return event;
}

// The steps whose digests are in a report; each digest must be its step's.
template <typename Report>
std::vector<uint64_t> StepsIn(const Report& report) {
  std::vector<uint64_t> steps;
  for (const v1::StepDigest& each : report.digests()) {
    CHECK(each.digest() == "d" + std::to_string(each.step()));
    steps.push_back(each.step());
  }
  return steps;
}

// A member of a job that applies 40 steps a millisecond, whose first report is sent after step
// `first`: the steps of each later one.
std::vector<std::vector<uint64_t>> ReportsOfFastJob(uint64_t first, uint64_t last) {
  WorkerLogic logic = RunningLogic();
  std::vector<std::vector<uint64_t>> reports;
  for (uint64_t step = first; step <= last; ++step) {
    const Time now = kNow + std::chrono::microseconds(25 * step);
    const Decision decision = logic.Step(Applied(step), now);
    if (Find<SendMessage>(decision) == nullptr) continue;
    reports.push_back(StepsIn(Sent(decision).progress()));
  }
  reports.erase(reports.begin());
  return reports;
}

TEST_CASE("WorkerLogic: the digest of every step of a slow job is reported") {
  WorkerLogic logic = RunningLogic();
  for (uint64_t step = 1; step <= 3; ++step) {
    const Time now = kNow + std::chrono::seconds(step);
    CHECK(StepsIn(Sent(logic.Step(Applied(step), now)).progress()) == std::vector{step});
    // Its evaluation says nothing new of the state.
    RunProgress evaluated = Applied(step);
    evaluated.evaluated = true;
    const Time later = now + std::chrono::milliseconds(100);
    CHECK(StepsIn(Sent(logic.Step(evaluated, later)).progress()).empty());
  }
}

TEST_CASE("WorkerLogic: members whose reports never coincide report digests of the same steps") {
  // 10,000 steps between two reports of a member; theirs are 3,333 steps apart.
  const auto a = ReportsOfFastJob(1, 90'000);
  const auto b = ReportsOfFastJob(3'334, 90'000);
  REQUIRE(a.size() == 8);
  REQUIRE(b.size() == 8);
  std::set<uint64_t> of_b;
  for (const auto& report : b) of_b.insert(report.begin(), report.end());
  for (const auto& report : a) {
    CHECK(report.size() >= 4);
    CHECK(report.size() <= 8);
    const auto both = std::count_if(report.begin(), report.end(),
                                    [&](uint64_t step) { return of_b.contains(step); });
    if (report.back() < b.back().back()) CHECK(both >= 3);
  }
}

TEST_CASE("WorkerLogic: a longer gap leaves coarser steps, which the others report, too") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(Disconnected{"broken"}, kNow);
  for (uint64_t step = 1; step <= 1'000; ++step) (void)logic.Step(Applied(step), kNow);
  (void)logic.Step(Connected{}, kNow);
  (void)logic.Step(Attached(3, true), kNow);
  const auto said = StepsIn(Sent(logic.Step(Applied(1'001), kNow)).progress());
  CHECK(said == std::vector<uint64_t>{128, 256, 384, 512, 640, 768, 896});
}

TEST_CASE("WorkerLogic: digests of a run that ended in an absence go out with what is said of it") {
  for (const Outcome outcome : {Outcome::kPeerLost, Outcome::kFinished}) {
    WorkerLogic logic = RunningLogic();
    (void)logic.Step(Applied(1), kNow);
    (void)logic.Step(Disconnected{"broken"}, kNow);
    (void)logic.Step(Applied(2), kNow);
    (void)logic.Step(Ended(outcome, 2), kNow);
    (void)logic.Step(Connected{}, kNow);
    const Decision said = logic.Step(Attached(3, true), kNow);
    const Decision fenced = logic.Step(Fence("j1", 2), kNow);
    const auto at_end = StepsIn(Sent(said).job_finished());
    const auto at_fence = StepsIn(Sent(fenced).fence_ack());
    CHECK(at_end.size() + at_fence.size() == 1);
    CHECK((outcome == Outcome::kFinished ? at_end : at_fence) == std::vector<uint64_t>{2});
  }
}

TEST_CASE("WorkerLogic: a new generation reports nothing that was applied before it") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(Applied(8), kNow);
  (void)logic.Step(Applied(9), kNow);
  (void)logic.Step(Fence("j1", 2), kNow);
  (void)logic.Step(Ended(Outcome::kStopped, 9), kNow);
  (void)logic.Step(Start("j1", 2, 4), kNow);  // back to an older state
  CHECK(StepsIn(Sent(logic.Step(Applied(5), kNow)).progress()) == std::vector<uint64_t>{5});
}

}  // namespace
}  // namespace ringmaster::worker
