#include "coordinator/service/worker_session.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "coordinator/service/fleet_service.h"
#include "tests/support/empty_store.h"
#include "tests/support/fake_worker.h"
#include "tests/support/served.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::coordinator {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

// The Fleet service, and what the control loop logs of its workers. Leases are longer than the
// test.
struct Sessions {
  Sessions() {
    logger->set_pattern("%v");
    spdlog::set_default_logger(logger);
    REQUIRE(control.Restore().ok());
    control.Start();
  }
  ~Sessions() {
    sessions.Close({absl::UnavailableError("the test ends"), "UNAVAILABLE"});
    control.Stop();
    spdlog::set_default_logger(before);
  }
  static Options Patient() {
    Options options;
    options.silence = options.lease = options.attach_limit = seconds(100);
    return options;
  }
  // An inbound message is delivered only to who reads it: this one hears nothing of Attached.
  void AttachDeaf(testing::FakeWorker& worker) {
    v1::WorkerMessage message;
    *message.mutable_attach() = testing::MakeAttach(worker.name());
    REQUIRE(worker.Say(message));
    Await([this] { return board.Workers(1 << 20).workers_size() == 1; });
  }
  template <typename Is>
  void Await(Is is) {
    const auto end = steady_clock::now() + seconds(20);
    while (!is() && steady_clock::now() < end) std::this_thread::yield();
    REQUIRE(is());
  }
  // The worker is lost; what was logged of that.
  std::string AwaitLoss() {
    Await([this] { return board.Workers(1 << 20).workers_size() == 0; });
    control.Stop();
    return log.str();
  }

  std::shared_ptr<spdlog::logger> before = spdlog::default_logger();
  std::ostringstream log;
  std::shared_ptr<spdlog::logger> logger = std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log));
  TemporaryFolder checkpoint_folder, log_folder;
  testing::EmptyStore store;
  CheckpointFolder checkpoints{checkpoint_folder.path()};
  std::unique_ptr<LogFolder> logs = *LogFolder::Open({log_folder.path()});
  Loop disk{{"disk", 16, seconds(1), nullptr}};
  Loop log_loop{{"logs", 16, seconds(1), nullptr}};
  StatusBoard board;
  SessionTable sessions;
  UploadTable uploads;
  LogIntakes intakes{{*logs, log_loop, board, sessions}};
  ControlLoop control{Patient(), {&store, &checkpoints, &disk, &board, &sessions, &uploads}};
  Passage passage;  // of every call
  OpenCalls calls{{[this](grpc::CallbackServerContext*) { return passage; }, nullptr,
                   [] { return UnixTime(); }}};
  FleetService fleet{{control, checkpoints, disk, sessions, uploads}, sessions, intakes, calls};
  testing::Served served{&fleet};
};

TEST_CASE_METHOD(Sessions, "WorkerSession: one that reads nothing is broken off after a while") {
  testing::FakeWorker deaf(served.channel(), "deaf");
  AttachDeaf(deaf);
  sessions.CancelStuck(steady_clock::now());
  CHECK(board.Workers(1 << 20).workers_size() == 1);
  sessions.CancelStuck(steady_clock::now() + seconds(11));
  CHECK_THAT(AwaitLoss(),
             Catch::Contains("worker=deaf was lost: its session broke (it did not read "
                             "its messages for 10 s)"));
  CHECK(deaf.End().error_code() == grpc::StatusCode::CANCELLED);
}

TEST_CASE_METHOD(Sessions, "WorkerSession: one that the coordinator ends does not wait for ever") {
  testing::FakeWorker deaf(served.channel(), "deaf");
  AttachDeaf(deaf);
  sessions.End(SessionId{1}, {absl::OkStatus(), ""});  // behind what it does not read
  sessions.CancelStuck(steady_clock::now() + seconds(11));
  CHECK_THAT(AwaitLoss(), Catch::Contains("did not read its messages"));
  CHECK(deaf.End().error_code() == grpc::StatusCode::CANCELLED);
}

TEST_CASE_METHOD(Sessions, "WorkerSession: one whose queue is full is broken off at once") {
  testing::FakeWorker deaf(served.channel(), "deaf");
  AttachDeaf(deaf);
  v1::CoordinatorMessage message;
  message.mutable_release()->set_job_id("j0001");
  for (int i = 0; i < 256; ++i) sessions.Send(SessionId{1}, message);
  CHECK_THAT(AwaitLoss(), Catch::Contains("(it does not read its messages, 256 wait)"));
  CHECK(deaf.End().error_code() == grpc::StatusCode::CANCELLED);
}

TEST_CASE_METHOD(Sessions, "WorkerSession: one that reads is not stuck, however long it is open") {
  testing::FakeWorker worker(served.channel(), "a");
  REQUIRE(worker.Attach().ok());
  v1::CoordinatorMessage message;
  message.mutable_release()->set_job_id("j0001");
  sessions.Send(SessionId{1}, message);
  REQUIRE(worker.Hear(v1::CoordinatorMessage::kRelease).ok());
  sessions.Send(SessionId{1}, message);
  REQUIRE(worker.Hear(v1::CoordinatorMessage::kRelease).ok());
  sessions.CancelStuck(steady_clock::now());
  sessions.Send(SessionId{1}, message);
  CHECK(worker.Hear(v1::CoordinatorMessage::kRelease).ok());
}

TEST_CASE_METHOD(Sessions, "WorkerSession: its ticket is worth nothing with another certificate") {
  const IdentityName own{IdentityKind::kWorker, "b"};
  testing::FakeWorker worker(served.channel(), "b");
  REQUIRE(worker.Attach().ok());
  CHECK(sessions.FindByTicket(worker.ticket(), std::nullopt)->worker == "b");
  CHECK(sessions.FindByTicket(worker.ticket(), own)->worker == "b");
  CHECK(!sessions.FindByTicket(worker.ticket(), IdentityName{IdentityKind::kWorker, "a"}));
  CHECK(!sessions.FindByTicket(worker.ticket(), IdentityName{IdentityKind::kUser, "b"}));

  const auto ship = [&](const std::string& as) {
    passage.caller.identity = IdentityName{IdentityKind::kWorker, as};
    const auto stub = v1::Fleet::NewStub(served.channel());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + seconds(20));
    const auto stream = stub->ShipLogs(&context);
    v1::LogChunk chunk;
    chunk.set_worker("b");
    chunk.set_spool(std::string(32, '0'));
    chunk.set_ticket(worker.ticket());
    stream->Write(chunk);
    stream->WritesDone();
    return stream->Finish().error_code();
  };
  CHECK(ship("a") == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(ship("b") != grpc::StatusCode::PERMISSION_DENIED);
}

TEST_CASE_METHOD(Sessions, "WorkerSession: one that is cut off is lost at once, and says why") {
  passage.caller = {IdentityName{IdentityKind::kWorker, "b"}, v1::ROLE_WORKER, UnixSeconds()};
  testing::FakeWorker worker(served.channel(), "b");
  REQUIRE(worker.Attach().ok());
  calls.Cut({IdentityKind::kWorker, "b"}, "it was revoked");
  CHECK_THAT(AwaitLoss(), Catch::Contains("worker=b was lost: its session broke (it was revoked)"));
  CHECK(worker.End().error_code() == grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace ringmaster::coordinator
