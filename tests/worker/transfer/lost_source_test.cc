#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <future>
#include <string>

#include "tests/worker/transfer/state_cases.h"
#include "worker/transfer/state_fetch.h"

extern char** environ;

namespace ringmaster::worker {
namespace {

// The program state_peer with its stdin and stdout as pipes; killed and reaped at the end.
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
    std::string program = STATE_PEER;
    std::array<char*, 2> arguments{program.data(), nullptr};
    if (posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments.data(), environ) != 0) {
      pid_ = 0;
    }
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    to_ = in[1];
    from_ = fdopen(out[0], "r");
  }
  ~Peer() {
    Signal(SIGKILL);
    if (pid_ != 0) waitpid(pid_, nullptr, 0);
    if (from_ != nullptr) (void)fclose(from_);
    close(to_);
  }

  // The next word that it prints; empty when it ended.
  [[nodiscard]] std::string ReadWord() {
    std::array<char, 64> word{};
    return from_ != nullptr && fscanf(from_, "%63s", word.data()) == 1 ? word.data() : "";
  }
  void Signal(int signal) const {
    if (pid_ != 0) kill(pid_, signal);
  }

 private:
  pid_t pid_ = 0;
  int to_ = -1;
  FILE* from_ = nullptr;
};

}  // namespace

TEST_CASE("FetchState: a source that is killed, or stands still, in the middle is lost") {
  Peer peer;
  FetchOptions options;
  options.address = peer.ReadWord();
  REQUIRE_FALSE(options.address.empty());
  options.source = "worker-a";
  options.job = JobId("job-1");
  options.step = 7;
  options.deadline = Soon();
  options.silence = std::chrono::seconds(30);  // it is the connection that tells
  int signal = 0;
  SECTION("killed") { signal = SIGKILL; }
  SECTION("stopped") { signal = SIGSTOP; }
  MemoryState got;
  auto fetch = std::async(std::launch::async, [&]() { return FetchState(options, &got, {}); });
  CHECK(peer.ReadWord() == "half");
  peer.Signal(signal);
  const Status status = fetch.get();
  INFO(Message(status));
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(Message(status).find("at step 7 from worker-a") != std::string::npos);
  CHECK(Message(status).find("the stream broke after ") != std::string::npos);
}

}  // namespace ringmaster::worker
