#include "worker/logic/worker_logic.h"

#include <catch2/catch.hpp>

#include "tests/worker/logic/logic_words.h"

namespace ringmaster::worker {
namespace {

TEST_CASE("WorkerLogic: a session begins with attach and carries the job that it still holds") {
  WorkerLogic logic = RunningLogic();
  v1::Progress progress;
  progress.set_job_id("j1");
  progress.set_applied(7);
  progress.set_digest("d7");
  (void)logic.Step(RunProgress{progress}, kNow + std::chrono::seconds(1));
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
}

TEST_CASE("WorkerLogic: it serves one job at a time") {
  WorkerLogic logic = PreparedLogic();
  const Decision decision = logic.Step(Inspect("j2"), kNow);
  CHECK(Sent(decision).inspected().job_id() == "j2");
  CHECK(Sent(decision).inspected().error() == "the worker still holds job j1");
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

TEST_CASE("WorkerLogic: a job released while it is prepared is dropped when that returns") {
  WorkerLogic logic = AttachedLogic();
  (void)logic.Step(Inspect("j1"), kNow);
  CHECK(logic.Step(Release("j1"), kNow).actions.empty());
  const Decision done = logic.Step(InspectDone{JobId("j1"), {}, ""}, kNow);
  CHECK(Find<DropJob>(done) != nullptr);
  CHECK(Find<SendMessage>(done) == nullptr);
  CHECK(logic.job().empty());
}

TEST_CASE("WorkerLogic: a job that the coordinator does not resume is dropped at attach") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(Disconnected{"broken"}, kNow);
  (void)logic.Step(Connected{}, kNow);
  const Decision attached = logic.Step(Attached(4, false), kNow);
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
  progress.set_test_accuracy(0.75);
  (void)logic.Step(RunProgress{progress}, start + std::chrono::milliseconds(1));
  const Decision ended = logic.Step(Ended(Outcome::kFinished, 9), kNow);
  REQUIRE(ended.actions.size() == 2);
  CHECK(std::get<SendMessage>(ended.actions[0]).message.progress().test_accuracy() == 0.75);
  CHECK(std::get<SendMessage>(ended.actions[1]).message.has_job_finished());
}

}  // namespace
}  // namespace ringmaster::worker
