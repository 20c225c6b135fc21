#include "coordinator/service/control_loop.h"

#include <spdlog/spdlog.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <vector>

#include "common/job/resolve.h"
#include "tests/support/cluster_messages.h"
#include "tests/support/empty_store.h"
#include "tests/support/fake_checkpoint.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::coordinator {
namespace {

// A store whose disk can be full, or take its time, and what it holds at the start.
class FullStore : public testing::EmptyStore {
 public:
  std::atomic<bool> slow = false;
  std::promise<void> written;  // when it is slow: a write begins, and ends when it may
  std::promise<void> may_end;

  std::vector<Status> WriteAll(const std::vector<const StoreWrite*>& writes) override {
    if (slow.exchange(false)) {
      written.set_value();
      may_end.get_future().wait();
    }
    return Store::WriteAll(writes);
  }
  std::atomic<bool> full = false;
  std::atomic<int> writes = 0;
  std::vector<JobRecord> jobs;
  std::vector<CheckpointRecord> checkpoints;
  std::vector<CheckpointRecord> inserted;  // control loop only, and before it starts

  StatusOr<std::vector<JobRecord>> LoadJobs() override { return jobs; }
  StatusOr<std::vector<CheckpointRecord>> LoadCheckpoints() override { return checkpoints; }
  Status InsertCheckpoint(const CheckpointRecord& record) override {
    inserted.push_back(record);
    return Ended();
  }

 private:
  Status Ended() override {
    ++writes;
    return full ? absl::UnavailableError("the disk is full") : absl::OkStatus();
  }
};

struct RunningLoop {
  RunningLoop() {
    spdlog::set_level(spdlog::level::off);
    REQUIRE(control.Restore().ok());
    disk.Start();
    control.Start();
  }
  Reply Ask(Event event) {
    std::promise<Reply> promise;
    control.Ask(std::move(event), [&](const Reply& reply) { promise.set_value(reply); });
    return promise.get_future().get();
  }
  Reply Submit() {
    SubmitAsked asked;
    *asked.submit.mutable_spec() = testing::MakeSpec();
    asked.submit.set_idempotency_key("key");
    return Ask(asked);
  }

  TemporaryFolder folder;
  FullStore store;
  CheckpointFolder checkpoints{folder.path()};
  Loop disk{{"disk", 16, std::chrono::seconds(1), nullptr}};
  StatusBoard board;
  SessionTable sessions;
  UploadTable uploads;
  ControlLoop control{{}, {&store, &checkpoints, &disk, &board, &sessions, &uploads}};
};

// Fulfils a promise when the job is shown with a state.
struct Seen : StatusBoard::Listener {
  Seen(StatusBoard& b, v1::JobState s) : board(b), state(s) {}
  void OnChange() override {
    if (board.Find("j0001")->status.state() == state && !done.exchange(true)) promise.set_value();
  }
  StatusBoard& board;
  const v1::JobState state;
  std::atomic<bool> done = false;
  std::promise<void> promise;
};

TEST_CASE_METHOD(RunningLoop, "ControlLoop: a job that cannot be stored is not acknowledged") {
  store.full = true;
  const Reply refused = Submit();
  CHECK(refused.refusal.status.code() == absl::StatusCode::kUnavailable);
  CHECK(refused.refusal.word == "STORE_UNAVAILABLE");
  CHECK(board.Find("j0001") == nullptr);
  store.full = false;
  CHECK(Submit().refusal.status.ok());
  CHECK(board.Find("j0001") != nullptr);
}

TEST_CASE_METHOD(RunningLoop,
                 "ControlLoop: a change that cannot be stored is not shown until it is") {
  REQUIRE(Submit().refusal.status.ok());
  store.full = true;
  CHECK(Ask(CancelAsked{JobId("j0001")}).refusal.status.code() == absl::StatusCode::kUnavailable);
  CHECK(board.Find("j0001")->status.state() == v1::JOB_STATE_QUEUED);
  const auto seen = std::make_shared<Seen>(board, v1::JOB_STATE_CANCELLED);
  REQUIRE(board.Listen("j0001", seen));
  store.full = false;  // the next tick tries again
  CHECK(seen->promise.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready);
}

TEST_CASE_METHOD(RunningLoop,
                 "ControlLoop: while the disk writes events are handled, and none is answered") {
  store.slow = true;
  std::promise<Reply> submitted, asked;
  SubmitAsked submit;
  *submit.submit.mutable_spec() = testing::MakeSpec();
  submit.submit.set_idempotency_key("key");
  control.Ask(submit, [&](const Reply& reply) { submitted.set_value(reply); });
  store.written.get_future().wait();
  // It is not stored yet, so that it is not there; the same one is not stored twice.
  control.Ask(CancelAsked{JobId("j0001")}, [&](const Reply& reply) { asked.set_value(reply); });
  std::promise<Reply> again;
  control.Ask(submit, [&](const Reply& reply) { again.set_value(reply); });
  std::promise<void> handled;
  REQUIRE(control.Post(Tick{}, [&] { handled.set_value(); }).ok());
  handled.get_future().wait();
  std::future<Reply> first = submitted.get_future(), second = asked.get_future();
  CHECK(first.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  CHECK(second.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  CHECK(board.Find("j0001") == nullptr);
  store.may_end.set_value();
  CHECK(first.get().job_id == "j0001");
  CHECK(second.get().refusal.word == "JOB_NOT_FOUND");
  CHECK(again.get_future().get().refusal.word == "SUBMISSION_UNDER_WAY");
}

TEST_CASE_METHOD(RunningLoop, "ControlLoop: who waits for a commit is answered before it stops") {
  store.slow = true;
  std::promise<Reply> submitted;
  SubmitAsked submit;
  *submit.submit.mutable_spec() = testing::MakeSpec();
  submit.submit.set_idempotency_key("key");
  control.Ask(submit, [&](const Reply& reply) { submitted.set_value(reply); });
  store.written.get_future().wait();
  store.may_end.set_value();
  control.Stop();
  std::future<Reply> answer = submitted.get_future();
  REQUIRE(answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
  CHECK(answer.get().job_id == "j0001");
}

TEST_CASE_METHOD(RunningLoop,
                 "ControlLoop: that the store cannot be written is shown until it can") {
  CHECK(board.StoreTrouble().empty());
  store.full = true;
  CHECK_FALSE(Submit().refusal.status.ok());
  CHECK_THAT(board.StoreTrouble(), Catch::Contains("cannot write its store (the disk is full)"));
  const int before = store.writes;
  store.full = false;
  // Nobody asks for anything: it is tried all the same.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!board.StoreTrouble().empty() && std::chrono::steady_clock::now() < deadline) {
    (void)Ask(CancelAsked{JobId("none")});
  }
  CHECK(board.StoreTrouble().empty());
  CHECK(store.writes > before);
}

// A store that was copied before two checkpoints of its one job came.
struct OlderStore {
  OlderStore() {
    spdlog::set_level(spdlog::level::off);
    JobRecord& job = store.jobs.emplace_back();
    job.number = 1;
    job.status.set_job_id("j0001");
    job.status.set_state(v1::JOB_STATE_FAILED);
    job.status.mutable_generation()->set_term(1);
    *job.status.mutable_spec() = testing::MakeSpec();
    job.resolved = *job::Resolve(testing::MakeSpec(), testing::MakeFacts(),
                                 testing::MakeAttach("a").numerics_class());
    result_digest = Hex(job::ResultDigest(job.resolved->result()));
    CheckpointRecord& known = store.checkpoints.emplace_back();
    known.job_id = "j0001";
    known.ref = Put("j0001", 2, result_digest);
  }
  v1::CheckpointRef Put(const std::string& job, uint64_t step, const std::string& digest) {
    return Put(job, step, digest, MapOf(store.jobs[0]));
  }
  v1::CheckpointRef Put(const std::string& job, uint64_t step, const std::string& digest,
                        const std::string& maps) {
    return testing::StoreCheckpoint(
        checkpoints, job, testing::MakeCheckpoint(step, digest, "bb", 1'000, "[" + maps + "]"));
  }
  // As a manifest has the one that it began with.
  static std::string MapOf(const JobRecord& job) {
    const v1::MappedClass& its = job.resolved->result().class_maps(0).classes(0);
    return fmt::format(R"({{"step":0,"before_evaluation":true,"classes":{{"{}":{}}}}})",
                       its.class_(), its.shards());
  }
  // Of j0001, as everyone sees them.
  std::vector<uint64_t> StepsAfterRestore() {
    ControlLoop control{{}, {&store, &checkpoints, &disk, &board, &sessions, &uploads}};
    REQUIRE(control.Restore().ok());
    std::vector<uint64_t> steps;
    for (const v1::CheckpointRef& ref : board.Find("j0001")->checkpoints) {
      steps.push_back(ref.step());
    }
    return steps;
  }

  TemporaryFolder folder;
  FullStore store;
  std::string result_digest;
  CheckpointFolder checkpoints{folder.path()};
  Loop disk{{"disk", 16, std::chrono::seconds(1), nullptr}};
  StatusBoard board;
  SessionTable sessions;
  UploadTable uploads;
};

TEST_CASE_METHOD(OlderStore, "ControlLoop: checkpoints that an older store lost are its again") {
  Put("j0001", 6, result_digest);
  Put("j0001", 4, result_digest);
  CHECK(StepsAfterRestore() == std::vector<uint64_t>{2, 4, 6});
  CHECK(board.Find("j0001")->status.checkpoint().step() == 6);
  REQUIRE(store.inserted.size() == 2);
  CHECK(store.inserted[0].job_id == "j0001");
}

TEST_CASE_METHOD(OlderStore, "ControlLoop: of strays none is used that is not whole or another's") {
  const v1::CheckpointRef damaged = Put("j0001", 4, result_digest);
  testing::Damage(damaged);
  const v1::CheckpointRef other = Put("j0001", 6, "00");
  CHECK(StepsAfterRestore() == std::vector<uint64_t>{2});
  CHECK(store.inserted.empty());
  CHECK(std::filesystem::exists(damaged.path()));
  CHECK(std::filesystem::exists(other.path()));
}

TEST_CASE_METHOD(OlderStore, "ControlLoop: of strays none is used that other class maps led to") {
  const std::string later = R"(,{"step":3,"before_evaluation":true,"classes":{"cpu-other-1":8}})";
  const std::string maps = MapOf(store.jobs[0]) + later;
  Put("j0001", 3, result_digest, maps);  // the first one led to it
  const v1::CheckpointRef other = Put("j0001", 4, result_digest, maps);
  CHECK(StepsAfterRestore() == std::vector<uint64_t>{2, 3});
  CHECK(std::filesystem::exists(other.path()));
}

// It is resolved anew, to other class maps perhaps.
TEST_CASE_METHOD(OlderStore, "ControlLoop: of strays none is used of a job that had not begun") {
  store.jobs[0].status.clear_generation();
  const v1::CheckpointRef stray = Put("j0001", 6, result_digest);
  CHECK(StepsAfterRestore() == std::vector<uint64_t>{2});
  CHECK(std::filesystem::exists(stray.path()));
}

TEST_CASE_METHOD(OlderStore, "ControlLoop: a new job gets no id whose checkpoints are there") {
  const v1::CheckpointRef unknown = Put("j0002", 4, result_digest);
  ControlLoop control{{}, {&store, &checkpoints, &disk, &board, &sessions, &uploads}};
  REQUIRE(control.Restore().ok());
  control.Start();
  SubmitAsked asked;
  *asked.submit.mutable_spec() = testing::MakeSpec();
  asked.submit.set_idempotency_key("key");
  std::promise<std::string> promise;
  control.Ask(asked, [&](const Reply& reply) { promise.set_value(reply.job_id); });
  CHECK(promise.get_future().get() == "j0003");
  CHECK(std::filesystem::exists(unknown.path()));
  control.Stop();
}

TEST_CASE_METHOD(RunningLoop,
                 "ControlLoop: after its stop questions are answered with UNAVAILABLE") {
  control.Stop();
  CHECK(Submit().refusal.status.code() == absl::StatusCode::kUnavailable);
  CHECK(control.Post(Tick{}).code() == absl::StatusCode::kUnavailable);
}

TEST_CASE_METHOD(OlderStore,
                 "ControlLoop: large messages wait up to a bound, small ones beside them") {
  ControlLoop control{{}, {&store, &checkpoints, &disk, &board, &sessions, &uploads}};
  REQUIRE(control.Restore().ok());
  WorkerSaid large{SessionId{1}, {}};  // of a session that is not open: ignored
  large.message.mutable_leaving()->set_reason(std::string(4 << 20, 'x'));
  int taken = 0;
  Status status;
  while (taken < 100 && (status = control.Post(large)).ok()) ++taken;
  CHECK(taken == 63);  // 256 MiB, and each is some bytes more than 4
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(Message(status), Catch::Contains("252 MiB of large messages wait"));
  SubmitAsked submit;
  *submit.submit.mutable_spec() = testing::MakeSpec();
  submit.submit.set_idempotency_key(std::string(5 << 20, 'x'));
  std::promise<Reply> refused;
  control.Ask(submit, [&](const Reply& reply) { refused.set_value(reply); });
  CHECK(refused.get_future().get().refusal.word == "OVERLOADED");
  // A heartbeat is let in; behind it there is room again.
  WorkerSaid small{SessionId{1}, {}};
  small.message.mutable_heartbeat();
  std::promise<void> handled;
  CHECK(control.Post(small, [&] { handled.set_value(); }).ok());
  control.Start();
  handled.get_future().wait();
  CHECK(control.Post(large).ok());
  control.Stop();
}

TEST_CASE("LoopWaits: four entries an octave from 16 us on, and everything is in one") {
  using std::chrono::microseconds;
  LoopWaits waits;
  const std::pair<microseconds, int> expected[] = {
      {microseconds(0), 0},  {microseconds(15), 0},         {microseconds(17), 0},
      {microseconds(20), 1}, {microseconds(33), 4},         {microseconds(16'385), 40},
      {microseconds(-5), 0}, {microseconds(40'000'000), 83}};
  for (const auto& [waited, entry] : expected) {
    v1::CoordinatorFigures before, after;
    waits.Show(before);
    waits.Add(waited);
    waits.Show(after);
    REQUIRE(after.loop_waits_size() == 84);
    for (int i = 0; i < 84; ++i) {
      CHECK(after.loop_waits(i) - before.loop_waits(i) == (i == entry ? 1 : 0));
    }
  }
}

}  // namespace
}  // namespace ringmaster::coordinator
