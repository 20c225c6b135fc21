// What a worker does when its ring changes: fences, starts, losses.
#include <catch2/catch.hpp>

#include "tests/worker/logic/logic_words.h"

namespace ringmaster::worker {
namespace {

v1::Progress ProgressOf(uint64_t applied) {
  v1::Progress progress;
  progress.set_job_id("j1");
  progress.set_applied(applied);
  return progress;
}

PeerSuspected Suspected(uint64_t counter, const std::string& peer) {
  return {JobId("j1"), {3, counter}, 7, peer, "no beat for 300 ms"};
}

// Of generation 1, which RunningLogic runs.
RunEnded Lost(const std::string& peer) {
  RunEnded ended = Ended(Outcome::kPeerLost, 7);
  ended.peer = peer;
  ended.reason = "connection reset";
  return ended;
}

TEST_CASE("Regroup: a fence at a boundary lets the step in hand end, then it is acknowledged") {
  WorkerLogic logic = RunningLogic();
  const Decision fenced = logic.Step(Fence("j1", 2, Boundary::kYes), kNow);
  REQUIRE(fenced.actions.size() == 1);
  CHECK(Find<CancelRun>(fenced)->when == RunStop::kAtBoundary);
  const Decision ended = logic.Step(Ended(Outcome::kStopped, 9), kNow);
  REQUIRE(ended.actions.size() == 1);
  CHECK(Sent(ended).fence_ack().generation().counter() == 2);
  CHECK(Sent(ended).fence_ack().applied() == 9);
}

TEST_CASE("Regroup: a fence now overrides one at a boundary, and alone is acknowledged") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(Fence("j1", 2, Boundary::kYes), kNow);
  const Decision now = logic.Step(Fence("j1", 3), kNow);
  REQUIRE(Find<CancelRun>(now) != nullptr);
  CHECK(Find<CancelRun>(now)->when == RunStop::kNow);
  const Decision ended = logic.Step(Ended(Outcome::kStopped, 9), kNow);
  REQUIRE(ended.actions.size() == 1);
  CHECK(Sent(ended).fence_ack().generation().counter() == 3);
}

TEST_CASE("Regroup: the same fence without its boundary overrides it too") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(Fence("j1", 2, Boundary::kYes), kNow);
  CHECK(logic.Step(Fence("j1", 2, Boundary::kYes), kNow).actions.empty());
  const Decision now = logic.Step(Fence("j1", 2), kNow);
  REQUIRE(Find<CancelRun>(now) != nullptr);
  CHECK(Find<CancelRun>(now)->when == RunStop::kNow);
}

TEST_CASE("Regroup: a run that ends now is not told to wait for a boundary") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(Fence("j1", 2), kNow);
  CHECK(logic.Step(Fence("j1", 3, Boundary::kYes), kNow).actions.empty());
  const Decision ended = logic.Step(Ended(Outcome::kStopped, 9), kNow);
  REQUIRE(ended.actions.size() == 1);
  CHECK(Sent(ended).fence_ack().generation().counter() == 3);
}

TEST_CASE("Regroup: a fence of a lower generation changes nothing, also while another is pending") {
  WorkerLogic logic = RunningLogic();
  CHECK(logic.Step(Fence("j1", 1), kNow).actions.empty());
  (void)logic.Step(Fence("j1", 3, Boundary::kYes), kNow);
  CHECK(logic.Step(Fence("j1", 2), kNow).actions.empty());
  CHECK(Sent(logic.Step(Ended(Outcome::kStopped, 9), kNow)).fence_ack().generation().counter() ==
        3);
}

TEST_CASE("Regroup: an acknowledgement says which shards are folded and whether it is evaluated") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(Fence("j1", 2), kNow);
  RunEnded ended = Ended(Outcome::kStopped, 9);
  ended.folded = {1, 3};
  ended.evaluated = true;
  const v1::FenceAck ack = Sent(logic.Step(ended, kNow)).fence_ack();
  REQUIRE(ack.folded_size() == 2);
  CHECK(ack.folded(0) == 1);
  CHECK(ack.folded(1) == 3);
  CHECK(ack.evaluated());
  // Nothing ran since.
  const v1::FenceAck later = Sent(logic.Step(Fence("j1", 3), kNow)).fence_ack();
  CHECK(later.applied() == 9);
  CHECK(later.folded_size() == 2);
  CHECK(later.evaluated());
}

TEST_CASE("Regroup: however a fenced run ends, it is acknowledged and accuses nobody") {
  for (const Outcome outcome :
       {Outcome::kFinished, Outcome::kFailed, Outcome::kPeerLost, Outcome::kStopped}) {
    WorkerLogic logic = RunningLogic();
    (void)logic.Step(Fence("j1", 2, Boundary::kYes), kNow);
    RunEnded ended = Ended(outcome, 9);
    ended.peer = "w2";
    const Decision decision = logic.Step(ended, kNow);
    REQUIRE(decision.actions.size() == 1);
    CHECK(Sent(decision).has_fence_ack());
  }
}

TEST_CASE("Regroup: a fenced run whose state is not finite any more says so, too") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(Fence("j1", 2, Boundary::kYes), kNow);
  RunEnded ended = Ended(Outcome::kFailed, 9);
  ended.code = v1::FAILURE_CODE_NOT_FINITE;
  ended.reason = "conv1/kernel is not finite";
  const Decision decision = logic.Step(ended, kNow);
  REQUIRE(decision.actions.size() == 2);
  CHECK(std::get<SendMessage>(decision.actions[0]).message.has_fence_ack());
  const v1::WorkerMessage& failed = std::get<SendMessage>(decision.actions[1]).message;
  CHECK(failed.job_failed().code() == v1::FAILURE_CODE_NOT_FINITE);
  CHECK(failed.job_failed().reason() == "conv1/kernel is not finite");
}

TEST_CASE("Regroup: a fence that comes while the state is fetched ends that, too") {
  WorkerLogic logic = PreparedLogic();
  (void)logic.Step(Fence("j1", 1), kNow);
  REQUIRE(Find<RunJob>(logic.Step(Start("j1", 1, 40), kNow)) != nullptr);
  const Decision fenced = logic.Step(Fence("j1", 2, Boundary::kYes), kNow);
  REQUIRE(Find<CancelRun>(fenced) != nullptr);
  CHECK(Find<SendMessage>(fenced) == nullptr);
  const Decision ended = logic.Step(Ended(Outcome::kStopped, 0), kNow);
  CHECK(Sent(ended).fence_ack().applied() == 0);
  CHECK(Find<RunJob>(logic.Step(Start("j1", 2, 41), kNow)) != nullptr);
}

TEST_CASE("Regroup: a cancelled run that is fenced as well answers both") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(Fence("j1", 2, Boundary::kYes), kNow);
  CHECK(Find<CancelRun>(logic.Step(Cancel("j1"), kNow))->when == RunStop::kNow);
  const Decision ended = logic.Step(Ended(Outcome::kStopped, 9), kNow);
  REQUIRE(ended.actions.size() == 2);
  CHECK(std::get<SendMessage>(ended.actions[0]).message.has_fence_ack());
  CHECK(std::get<SendMessage>(ended.actions[1]).message.has_job_stopped());
}

TEST_CASE("Regroup: the end of an older generation's run is not the end of this one's") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(Fence("j1", 2), kNow);
  (void)logic.Step(Ended(Outcome::kStopped, 9), kNow);
  (void)logic.Step(Start("j1", 2, 9), kNow);
  CHECK(logic.Step(Ended(Outcome::kStopped, 9), kNow).actions.empty());
  (void)logic.Step(Fence("j1", 3), kNow);
  RunEnded ended = Ended(Outcome::kStopped, 11);
  ended.generation = {3, 2};
  CHECK(Sent(logic.Step(ended, kNow)).fence_ack().applied() == 11);
}

TEST_CASE("Regroup: each generation's run is told anew to end, and ends as its own") {
  WorkerLogic logic = RunningLogic();
  (void)logic.Step(Fence("j1", 2), kNow);
  (void)logic.Step(Ended(Outcome::kStopped, 9), kNow);
  (void)logic.Step(Start("j1", 2, 9), kNow);
  CHECK(Find<CancelRun>(logic.Step(Fence("j1", 3, Boundary::kYes), kNow)) != nullptr);
  CHECK(Find<CancelRun>(logic.Step(Cancel("j1"), kNow)) != nullptr);
  RunEnded ended = Ended(Outcome::kStopped, 11);
  ended.generation = {3, 2};
  CHECK(logic.Step(ended, kNow).actions.size() == 2);
  // A coordinator that changed its mind.
  (void)logic.Step(Start("j1", 3, 11), kNow);
  ended.outcome = Outcome::kFinished;
  ended.generation = {3, 3};
  CHECK(Sent(logic.Step(ended, kNow)).has_job_finished());
}

TEST_CASE("Regroup: the first progress of a generation goes out at once") {
  WorkerLogic logic = RunningLogic();
  const Time start = kNow + std::chrono::seconds(10);
  CHECK(logic.Step(RunProgress{ProgressOf(8)}, start).actions.size() == 1);
  (void)logic.Step(Fence("j1", 2), start);
  (void)logic.Step(Ended(Outcome::kStopped, 8), start);
  (void)logic.Step(Start("j1", 2, 8), start);
  const auto soon = start + std::chrono::milliseconds(1);
  CHECK(logic.Step(RunProgress{ProgressOf(9)}, soon).actions.size() == 1);
  CHECK(logic.Step(RunProgress{ProgressOf(10)}, soon).actions.empty());
}

TEST_CASE("Regroup: joined is told of the generation that was started, unless it is fenced") {
  WorkerLogic logic = RunningLogic();
  CHECK(logic.Step(RunJoined{JobId("j1"), {3, 0}, 0}, kNow).actions.empty());
  const v1::Joined joined = Sent(logic.Step(RunJoined{JobId("j1"), {3, 1}, 0.5}, kNow)).joined();
  CHECK(joined.job_id() == "j1");
  CHECK(joined.generation().term() == 3);
  CHECK(joined.generation().counter() == 1);
  CHECK(joined.fetch_seconds() == 0.5);
  WorkerLogic fenced = RunningLogic();
  (void)fenced.Step(Fence("j1", 2), kNow);
  CHECK(fenced.Step(RunJoined{JobId("j1"), {3, 1}, 0}, kNow).actions.empty());
}

TEST_CASE("Regroup: each peer is suspected once in a generation, and the run goes on") {
  WorkerLogic logic = RunningLogic();
  const Decision first = logic.Step(Suspected(1, "w2"), kNow);
  REQUIRE(first.actions.size() == 1);
  const v1::Suspicion& suspicion = Sent(first).suspicion();
  CHECK(suspicion.job_id() == "j1");
  CHECK(suspicion.generation().counter() == 1);
  CHECK(suspicion.peer() == "w2");
  CHECK(suspicion.step() == 7);
  CHECK(suspicion.reason() == "no beat for 300 ms");
  CHECK(logic.Step(Suspected(1, "w2"), kNow).actions.empty());
  CHECK(logic.Step(Suspected(0, "w3"), kNow).actions.empty());
  CHECK(logic.Step(Suspected(1, "w3"), kNow).actions.size() == 1);
  // Its link breaks for the same reason.
  CHECK(logic.Step(Lost("w2"), kNow).actions.empty());
  // The next generation begins without a suspicion.
  (void)logic.Step(Fence("j1", 2), kNow);
  (void)logic.Step(Start("j1", 2, 7), kNow);
  CHECK(logic.Step(Suspected(2, "w2"), kNow).actions.size() == 1);
}

TEST_CASE("Regroup: a ring lost without a name is still told") {
  WorkerLogic logic = RunningLogic();
  const Decision decision = logic.Step(Lost(""), kNow);
  CHECK(Sent(decision).suspicion().peer().empty());
  CHECK(Sent(decision).suspicion().reason() == "connection reset");
}

TEST_CASE("Regroup: a state is saved between runs, once at a time") {
  WorkerLogic logic = RunningLogic();
  FromCoordinator save;
  save.message.mutable_save_state()->set_job_id("j1");
  CHECK(Sent(logic.Step(save, kNow)).state_saved().error() == "a run is on");
  (void)logic.Step(Fence("j1", 2), kNow);
  (void)logic.Step(Ended(Outcome::kStopped, 9), kNow);
  const Decision deliver = logic.Step(save, kNow);
  REQUIRE(Find<DeliverState>(deliver) != nullptr);
  CHECK(deliver.actions.size() == 1);
  CHECK(logic.Step(save, kNow).actions.empty());
  const Decision done = logic.Step(StateDelivered{JobId("j1"), 9, ""}, kNow);
  CHECK(Sent(done).state_saved().applied() == 9);
  CHECK(Sent(done).state_saved().error().empty());
  CHECK(Find<DeliverState>(logic.Step(save, kNow)) != nullptr);
}

TEST_CASE("Regroup: a state that is not here cannot be saved, and that is said") {
  WorkerLogic logic = AttachedLogic();
  FromCoordinator save;
  save.message.mutable_save_state()->set_job_id("j1");
  const Decision decision = logic.Step(save, kNow);
  CHECK(Sent(decision).state_saved().job_id() == "j1");
  CHECK(Sent(decision).state_saved().error() == "the worker does not hold the job");
}

TEST_CASE("Regroup: a state is looked at before a fence that asks for it is acknowledged") {
  WorkerLogic logic = RunningLogic();
  FromCoordinator fence = Fence("j1", 2);
  fence.message.mutable_fence()->set_verify_state(true);
  CHECK(Find<CancelRun>(logic.Step(fence, kNow)) != nullptr);
  const Decision ended = logic.Step(Ended(Outcome::kStopped, 9), kNow);
  REQUIRE(Find<CheckHeldState>(ended) != nullptr);
  CHECK(ended.actions.size() == 1);
  // A second one meanwhile is answered with the same look.
  fence.message.mutable_fence()->mutable_generation()->set_counter(3);
  CHECK(logic.Step(fence, kNow).actions.empty());
  const v1::WorkerMessage answer = Sent(logic.Step(StateChecked{JobId("j1"), ""}, kNow));
  CHECK(answer.fence_ack().applied() == 9);
  CHECK(answer.fence_ack().generation().counter() == 3);
  CHECK(logic.Step(StateChecked{JobId("j1"), ""}, kNow).actions.empty());
}

TEST_CASE("Regroup: of a state that is not what was written nothing else is said any more") {
  const bool noticed_by_run = GENERATE(false, true);
  WorkerLogic logic = RunningLogic();
  Decision told;
  if (noticed_by_run) {
    RunEnded ended = Ended(Outcome::kFailed, 9);
    ended.reason = "fc differs";
    ended.code = v1::FAILURE_CODE_STATE_DIFFERS;
    told = logic.Step(ended, kNow);
  } else {
    FromCoordinator fence = Fence("j1", 2);
    fence.message.mutable_fence()->set_verify_state(true);
    (void)logic.Step(fence, kNow);
    (void)logic.Step(Ended(Outcome::kStopped, 9), kNow);
    told = logic.Step(StateChecked{JobId("j1"), "fc differs"}, kNow);
  }
  for (const Decision& decision : {told, logic.Step(Fence("j1", 7), kNow)}) {
    const v1::JobFailed& failed = Sent(decision).job_failed();
    CHECK(failed.code() == v1::FAILURE_CODE_STATE_DIFFERS);
    CHECK(failed.step() == 9);
    CHECK(failed.reason() == "fc differs");
  }
  CHECK(logic.Step(Start("j1", 7, 9), kNow).actions.empty());
  FromCoordinator save;
  save.message.mutable_save_state()->set_job_id("j1");
  CHECK(Sent(logic.Step(save, kNow)).state_saved().error() == "fc differs");
  CHECK(Find<DropJob>(logic.Step(Release("j1"), kNow)) != nullptr);
}

TEST_CASE("Regroup: copies of a checkpoint that is kept are forgotten") {
  WorkerLogic logic = RunningLogic();
  FromCoordinator kept;
  kept.message.mutable_checkpoint_kept()->set_job_id("j1");
  kept.message.mutable_checkpoint_kept()->set_step(40);
  const Decision decision = logic.Step(kept, kNow);
  REQUIRE(Find<ForgetCopies>(decision) != nullptr);
  CHECK(Find<ForgetCopies>(decision)->step == 40);
  kept.message.mutable_checkpoint_kept()->set_job_id("j2");
  CHECK(logic.Step(kept, kNow).actions.empty());
}

}  // namespace
}  // namespace ringmaster::worker
