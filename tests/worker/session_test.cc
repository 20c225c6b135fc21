#include "worker/session.h"

#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "common/check.h"

namespace ringmaster::worker {
namespace {

v1::WorkerMessage HeartbeatMessage() {
  v1::WorkerMessage message;
  message.mutable_heartbeat()->set_phase("compute");
  return message;
}

v1::WorkerMessage AttachMessage() {
  v1::WorkerMessage message;
  message.mutable_attach()->set_name("w");
  return message;
}

// A coordinator at a port of its own. Ends each session after its first message unless it keeps
// them, and remembers of what kind that was.
class FakeFleet : public v1::Fleet::Service {
 public:
  enum class Sessions : uint8_t { kEnd, kKeep };
  explicit FakeFleet(Sessions sessions, int port = 0) : sessions_(sessions) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    RING_CHECK(server_ != nullptr, "the coordinator of the test listens");
  }
  ~FakeFleet() override { server_->Shutdown(std::chrono::system_clock::now()); }

  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] std::shared_ptr<grpc::Channel> NewChannel() const {
    return CoordinatorChannel(Address{"127.0.0.1", static_cast<uint16_t>(port_)});
  }
  // The first messages of the first `sessions` sessions; fewer after 20 s.
  std::vector<v1::WorkerMessage::KindCase> Await(size_t sessions) {
    MutexLock lock(mu_);
    changed_.WaitUntil(mu_, std::chrono::steady_clock::now() + std::chrono::seconds(20),
                       [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return first_.size() >= sessions; });
    return first_;
  }

 private:
  grpc::Status Session(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>* stream) override {
    v1::WorkerMessage message;
    if (!stream->Read(&message)) return grpc::Status::OK;
    {
      MutexLock lock(mu_);
      first_.push_back(message.kind_case());
      changed_.NotifyAll();
    }
    while (sessions_ == Sessions::kKeep && stream->Read(&message)) {
    }
    return {grpc::UNAVAILABLE, "ended on request"};
  }

  const Sessions sessions_;
  int port_ = 0;
  Mutex mu_;
  Condition changed_;
  std::vector<v1::WorkerMessage::KindCase> first_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<grpc::Server> server_;  // last: its calls use everything above
};

// A session whose owner attaches when it is connected, while a thread sends heartbeats without a
// pause: whatever moment a stream is in, one comes.
class BusySession {
 public:
  explicit BusySession(std::shared_ptr<grpc::Channel> channel)
      : session_(std::move(channel), [this](const Event& event) { On(event); }),
        sender_([this](const std::stop_token& stop) {
          while (!stop.stop_requested()) session_.Send(HeartbeatMessage());
        }) {
    session_.Start();
  }
  ~BusySession() {
    sender_.request_stop();
    sender_.join();
    session_.Stop();
  }

  [[nodiscard]] size_t ends() {
    MutexLock lock(mu_);
    return ends_;
  }
  // Waits for the end of so many sessions; false after 20 s.
  bool AwaitEnds(size_t ends) {
    MutexLock lock(mu_);
    return changed_.WaitUntil(mu_, std::chrono::steady_clock::now() + std::chrono::seconds(20),
                              [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return ends_ >= ends; });
  }

 private:
  void On(const Event& event) {
    if (std::holds_alternative<Connected>(event)) session_.Send(AttachMessage());
    if (!std::holds_alternative<Disconnected>(event)) return;
    MutexLock lock(mu_);
    ++ends_;
    changed_.NotifyAll();
  }

  Mutex mu_;
  Condition changed_;
  size_t ends_ ABSL_GUARDED_BY(mu_) = 0;
  Session session_;
  std::jthread sender_;
};

}  // namespace

TEST_CASE("Session: Attach is its first message, whatever else is sent meanwhile") {
  FakeFleet fleet(FakeFleet::Sessions::kEnd);
  BusySession session(fleet.NewChannel());
  const auto first = fleet.Await(5);
  REQUIRE(first.size() >= 5);
  for (const auto kind : first) CHECK(kind == v1::WorkerMessage::kAttach);
}

TEST_CASE("Session: a coordinator that refuses is asked again while messages come") {
  BusySession session(CoordinatorChannel(Address{"127.0.0.1", 1}));
  CHECK(session.AwaitEnds(6));
}

// What waits for a connection must move it on: gRPC does not by itself with the engine that
// ringworker chooses, and then it came after some failures, or not for a minute.
TEST_CASE(
    "Session: a coordinator that comes back is found after one or two failures more at most") {
  const auto kept = FakeFleet::Sessions::kKeep;
  auto fleet = std::make_unique<FakeFleet>(kept);
  BusySession session(fleet->NewChannel());
  for (size_t round = 0; round < 5; ++round) {
    REQUIRE(fleet->Await(1).size() == 1);
    const int port = fleet->port();
    const size_t ends = session.ends();
    fleet.reset();
    REQUIRE(session.AwaitEnds(ends + 2 + round % 3));
    fleet = std::make_unique<FakeFleet>(kept, port);
    const size_t failures = session.ends();
    REQUIRE(fleet->Await(1).size() == 1);
    INFO(round);
    CHECK(session.ends() <= failures + 2);
  }
}

}  // namespace ringmaster::worker
