// A zygote of tests, run as an interpreter: fake_zygote -m ringmaster.zygote HOW. HOW is what goes
// wrong: "" nothing, "no torch", "dies at once" (the zygote); of a child: "prints" so many lines,
// "dies", "exits", "exits among many" (after a thousand of higher ids), "hangs"; "deserts" (the
// zygote ends when it is to fork). "killed early", "killed in fork", "child killed", twice each,
// and "always killed early": it counts in a file beside its script.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <string>

#include "common/files.h"
#include "tests/worker/script/fake_child.h"

namespace ringmaster::script {
namespace {

constexpr int kControl = 3;
const int kPrinted = 5'000;  // what a pipe holds, so that nothing waits for who reads it
constexpr int32_t kMany = 1'000, kHighId = 1 << 30;

struct Forked {
  uint32_t core;
  int32_t id;
};
struct Exited {
  uint32_t core;
  int32_t id, status;
};

template <typename T>
void Say(PacketKind kind, const T& words) {
  (void)Send(kControl, kind, {reinterpret_cast<const char*>(&words), sizeof(words)}, {}, Soon());
}

// SIGKILL, the first `times` that this is called of such a script.
void BeKilled(const std::string& script, int times = 2) {
  const OwnedFile count(open((script + ".killed").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600));
  if (lseek(count.get(), 0, SEEK_END) == times) return;
  (void)!write(count.get(), "x", 1);
  raise(SIGKILL);
}

[[noreturn]] void BeChild(const std::string& how, Packet packet, const sigset_t& stacks) {
  dup2(packet.files[1].get(), STDOUT_FILENO);
  dup2(packet.files[1].get(), STDERR_FILENO);
  close(kControl);
  if (how == "prints") {
    std::string text;
    for (int i = 0; i < kPrinted; ++i) text += "line " + std::to_string(i) + "\n";
    (void)WriteAll(STDOUT_FILENO, text + "the last one has no end");
  }
  if (how == "dies") {
    signal(SIGSEGV, SIG_DFL);  // no sanitizer's
    raise(SIGSEGV);
  }
  if (how.starts_with("exits")) _exit(7);
  if (how == "hangs") {
    int number = 0;
    sigwait(&stacks, &number);
    (void)WriteAll(STDERR_FILENO, std::string("train.py:12 in loop\n"));
    _exit(0);
  }
  LiveAsChild(0, packet.files[0], {});
  _exit(0);
}

int Serve(const std::string& script) {
  const std::string how = std::filesystem::path(script).stem().string();
  v1::ScriptInterpreter said;
  if (how == "killed early") BeKilled(script);
  if (how == "always killed early") BeKilled(script, 1'000);
  if (how == "dies at once") return 5;
  if (how == "no torch") said.set_error("fake cannot import torch: apt install python3-torch");
  if (!SendJson(kControl, PacketKind::kUp, said, {}, Soon()).ok()) return 1;
  sigset_t stacks;  // blocked from a child's birth on: whenever it is to say them, it does
  sigemptyset(&stacks);
  sigaddset(&stacks, SIGUSR1);
  sigprocmask(SIG_BLOCK, &stacks, nullptr);
  std::map<pid_t, uint32_t> children;
  for (;;) {
    StatusOr<Packet> packet =
        Receive(kControl, std::chrono::steady_clock::now() + std::chrono::milliseconds(10));
    if (packet.ok() && packet->kind == PacketKind::kFork) {
      if (how == "deserts") return 6;
      if (how == "killed in fork") BeKilled(script);
      uint32_t core = 0;
      std::memcpy(&core, packet->body.data(), sizeof(core));
      const pid_t id = fork();
      if (id == 0 && how == "child killed") BeKilled(script);
      if (id == 0) BeChild(how, *std::move(packet), stacks);
      children[id] = core;
      Say(PacketKind::kForked, Forked{core, id});
    } else if (!absl::IsDeadlineExceeded(packet.status())) {
      break;
    }
    int status = 0;
    for (pid_t id = 0; (id = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (how == "exits among many") {
        for (int32_t i = 0; i < kMany; ++i) Say(PacketKind::kExited, Exited{1, kHighId + i, 0});
      }
      Say(PacketKind::kExited, Exited{children[id], id, status});
      children.erase(id);
    }
  }
  for (const auto& [id, core] : children) kill(id, SIGKILL);
  return 0;
}

}  // namespace
}  // namespace ringmaster::script

int main(int argc, char** argv) { return ringmaster::script::Serve(argc > 3 ? argv[3] : ""); }
