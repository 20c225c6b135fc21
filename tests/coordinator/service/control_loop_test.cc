#include "coordinator/service/control_loop.h"

#include <spdlog/spdlog.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <vector>

#include "tests/support/cluster_messages.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::coordinator {
namespace {

// A store whose disk can be full.
class FullStore : public Store {
 public:
  std::atomic<bool> full = false;

  uint64_t term() const override { return 1; }
  StatusOr<std::vector<JobRecord>> LoadJobs() override { return std::vector<JobRecord>(); }
  StatusOr<std::vector<CheckpointRecord>> LoadCheckpoints() override {
    return std::vector<CheckpointRecord>();
  }
  Status RaiseTerm(uint64_t) override { return Write(); }
  Status InsertJob(const JobRecord&) override { return Write(); }
  Status SaveJob(const JobRecord&) override { return Write(); }
  Status InsertCheckpoint(const CheckpointRecord&) override { return Write(); }
  Status RemoveCheckpoint(const CheckpointRecord&) override { return Write(); }

 private:
  Status Write() const {
    return full ? absl::UnavailableError("the disk is full") : absl::OkStatus();
  }
};

struct Fixture {
  Fixture() {
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
  ControlLoop control{{}, {&store, &checkpoints, &disk, &board, &sessions}};
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

TEST_CASE_METHOD(Fixture, "ControlLoop: a job that cannot be stored is not acknowledged") {
  store.full = true;
  const Reply refused = Submit();
  CHECK(refused.refusal.status.code() == absl::StatusCode::kUnavailable);
  CHECK(refused.refusal.word == "STORE_UNAVAILABLE");
  CHECK(board.Find("j0001") == nullptr);
  store.full = false;
  CHECK(Submit().refusal.status.ok());
  CHECK(board.Find("j0001") != nullptr);
}

TEST_CASE_METHOD(Fixture, "ControlLoop: a change that cannot be stored is not shown until it is") {
  REQUIRE(Submit().refusal.status.ok());
  store.full = true;
  CHECK(Ask(CancelAsked{JobId("j0001")}).refusal.status.code() == absl::StatusCode::kUnavailable);
  CHECK(board.Find("j0001")->status.state() == v1::JOB_STATE_QUEUED);
  const auto seen = std::make_shared<Seen>(board, v1::JOB_STATE_CANCELLED);
  REQUIRE(board.Listen("j0001", seen));
  store.full = false;  // the next tick tries again
  CHECK(seen->promise.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready);
}

TEST_CASE_METHOD(Fixture, "ControlLoop: after its stop questions are answered with UNAVAILABLE") {
  control.Stop();
  CHECK(Submit().refusal.status.code() == absl::StatusCode::kUnavailable);
  CHECK_FALSE(control.Post(Tick{}));
}

}  // namespace
}  // namespace ringmaster::coordinator
