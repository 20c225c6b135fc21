#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <future>
#include <string>

#include "worker/ring/grpc/ring_port.h"

extern char** environ;

namespace ringmaster::ring {
namespace {

// The program ring_peer with its stdin and stdout as pipes; killed and reaped at the end.
class Peer {
 public:
  Peer() {
    std::array<int, 2> in{}, out{};
    if (pipe(in.data()) != 0 || pipe(out.data()) != 0) return;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    for (const int end : {in[0], in[1], out[0], out[1]}) {
      posix_spawn_file_actions_addclose(&actions, end);
    }
    std::string program = RING_PEER;
    std::array<char*, 2> arguments{program.data(), nullptr};
    if (posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments.data(), environ) != 0) {
      pid_ = 0;
    }
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    to_ = fdopen(in[1], "w");
    from_ = fdopen(out[0], "r");
  }
  ~Peer() {
    Kill();
    if (to_ != nullptr) (void)fclose(to_);
    if (from_ != nullptr) (void)fclose(from_);
  }

  [[nodiscard]] int ReadPort() {
    int port = 0;
    return from_ != nullptr && fscanf(from_, "%d", &port) == 1 ? port : 0;
  }
  void WritePort(int port) {
    (void)fprintf(to_, "%d\n", port);
    (void)fflush(to_);
  }
  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

}  // namespace

TEST_CASE("RingPort: a killed neighbour ends Receive and Send at once, and is named") {
  Peer peer;
  const int peer_port = peer.ReadPort();
  REQUIRE(peer_port != 0);
  const auto port = RingPort::Create({"127.0.0.1", 0});
  REQUIRE(port.ok());
  peer.WritePort((*port)->port());
  LinkOptions options;
  options.job_id = "job-1";
  options.generation = {1, 1};
  options.successor_address = "127.0.0.1:" + std::to_string(peer_port);
  options.successor_name = "worker-1";
  options.self_name = "worker-0";
  options.self_incarnation = "worker-0-process";
  options.predecessor_name = "worker-1";
  options.predecessor_incarnation = "worker-1-process";
  const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto link = (*port)->Connect(options, soon);
  REQUIRE(link.ok());
  REQUIRE((*link)->Receive(soon).ok());

  // A sender that waits because the peer takes nothing, and a receiver.
  auto sending = std::async(std::launch::async, [&]() {
    const Payload payload(std::vector<uint8_t>(1 << 20, 1));
    const FrameHeader header = Sealed({.job = JobHash("job-1"), .generation = {1, 1}}, payload);
    Status status;
    while (status.ok()) status = (*link)->Send(header, payload, soon);
    return status;
  });
  const auto killed = std::chrono::steady_clock::now();
  peer.Kill();
  Status status;
  while (status.ok()) status = (*link)->Receive(soon).status();
  const auto noticed = std::chrono::steady_clock::now() - killed;
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(Message(status).find("worker-1") != std::string::npos);
  CHECK(Message(status).find("is lost") != std::string::npos);
  CHECK(sending.get().code() == absl::StatusCode::kUnavailable);
  CHECK(noticed < std::chrono::seconds(1));  // milliseconds, but for a machine under load
}

}  // namespace ringmaster::ring
