// The program ring_peer: worker-1 of a ring of two in a process of its own, to be killed or
// stopped. Killed and reaped at the end. Not thread-safe.
#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

#include "tests/worker/ring/grpc/port_ring.h"
#include "worker/ring/grpc/ring_port.h"

extern char** environ;

namespace ringmaster::ring {

// How worker-0 connects to it, at its port.
[[nodiscard]] inline LinkOptions OptionsBeside(int peer_port) {
  LinkOptions options;
  options.job_id = "job-1";
  options.generation = {1, 1};
  options.ticket = kTicket;
  options.successor_address = "127.0.0.1:" + std::to_string(peer_port);
  options.successor_name = "worker-1";
  options.self_name = "worker-0";
  options.self_incarnation = "worker-0-process";
  options.predecessor_name = "worker-1";
  options.predecessor_incarnation = "worker-1-process";
  return options;
}

class PeerProcess {
 public:
  PeerProcess() {
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
  ~PeerProcess() {
    Kill();
    if (to_ != nullptr) (void)fclose(to_);
    if (from_ != nullptr) (void)fclose(from_);
  }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // Its port; 0: it did not start.
  [[nodiscard]] int ReadPort() {
    int port = 0;
    return from_ != nullptr && fscanf(from_, "%d", &port) == 1 ? port : 0;
  }
  // worker-0's port: it joins generation 1.1, and then does "flood", "sum" of buckets of so many
  // blocks, or "idle", as ring_peer.cc says.
  void WritePort(int port, const char* does = "flood", size_t blocks = 0) {
    (void)fprintf(to_, "%d %s %zu\n", port, does, blocks);
    (void)fflush(to_);
  }
  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  // Returns when it stands still.
  void Stop() const {
    if (pid_ == 0) return;
    kill(pid_, SIGSTOP);
    waitpid(pid_, nullptr, WUNTRACED);
  }
  void Continue() const {
    if (pid_ != 0) kill(pid_, SIGCONT);
  }

 private:
  pid_t pid_ = 0;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

}  // namespace ringmaster::ring
