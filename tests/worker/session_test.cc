#include "worker/session.h"
#include "tests/support/served.h"

#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <vector>

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

// Ends each session after its first message, and remembers of what kind that was.
class FakeFleet : public v1::Fleet::Service {
 public:
  // The first messages of the first `sessions` sessions; fewer after 20 s.
  std::vector<v1::WorkerMessage::KindCase> Await(size_t sessions) {
    MutexLock lock(mu_);
    changed_.WaitUntil(mu_, std::chrono::steady_clock::now() + std::chrono::seconds(20),
                       [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return first_.size() >= sessions; });
    return first_;
  }
  const std::shared_ptr<grpc::Channel>& channel() const { return served_.channel(); }

 private:
  grpc::Status Session(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>* stream) override {
    v1::WorkerMessage message;
    if (!stream->Read(&message)) return grpc::Status::OK;
    MutexLock lock(mu_);
    first_.push_back(message.kind_case());
    changed_.NotifyAll();
    return {grpc::UNAVAILABLE, "ended on request"};
  }

  Mutex mu_;
  Condition changed_;
  std::vector<v1::WorkerMessage::KindCase> first_ ABSL_GUARDED_BY(mu_);
  testing::Served served_{this};  // last: its calls use everything above
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
  FakeFleet fleet;
  BusySession session(fleet.channel());
  const auto first = fleet.Await(5);
  REQUIRE(first.size() >= 5);
  for (const auto kind : first) CHECK(kind == v1::WorkerMessage::kAttach);
}

TEST_CASE("Session: a coordinator that refuses is asked again while messages come") {
  BusySession session(CoordinatorChannel("127.0.0.1:1"));
  CHECK(session.AwaitEnds(6));
}

}  // namespace ringmaster::worker
