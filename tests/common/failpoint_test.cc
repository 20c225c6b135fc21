#include "common/failpoint.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace ringmaster {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A forked process that arms `text`, is at the point "compute" of steps 1 to 5, writes a byte after
// each, and exits with 0; killed and reaped at the end.
class Child {
 public:
  explicit Child(const std::string& text) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      if (!ArmFailpoints(text.c_str()).ok()) _exit(2);
      for (uint64_t step = 1; step <= 5; ++step) {
        HitFailpoint("compute", step);
        if (write(ends[1], "x", 1) != 1) _exit(3);
      }
      _exit(0);
    }
    close(ends[1]);
    steps_ = ends[0];
  }
  ~Child() {
    Kill();
    if (pid_ > 0) (void)Wait();
    close(steps_);
  }

  [[nodiscard]] pid_t pid() const { return pid_; }
  void Kill() const {
    if (pid_ > 0) kill(pid_, SIGKILL);
  }
  void Continue() const { kill(pid_, SIGCONT); }
  // How it ended, or WIFSTOPPED with WUNTRACED.
  int Wait(int options = 0) {
    int status = 0;
    if (waitpid(pid_, &status, options) != pid_) return -1;
    if (!WIFSTOPPED(status)) pid_ = 0;
    return status;
  }
  // Steps that it left behind it, once nobody holds the pipe any more.
  [[nodiscard]] int Steps() const {
    int steps = 0;
    char byte = 0;
    while (read(steps_, &byte, 1) == 1) ++steps;
    return steps;
  }

 private:
  pid_t pid_ = -1;
  int steps_ = -1;
};

bool Killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }
bool Exited(int status, int code) { return WIFEXITED(status) && WEXITSTATUS(status) == code; }

TEST_CASE("Failpoint: kills its process at the step and the name that it is armed for") {
  const auto steps_until_killed = [](const std::string& text) {
    Child child(text);
    const int status = child.Wait();
    return Killed(status) ? child.Steps() : -1;
  };
  CHECK(steps_until_killed("compute@3=kill") == 2);
  CHECK(steps_until_killed("compute=kill") == 0);
  CHECK(steps_until_killed("compute@4-9=kill") == 3);
  CHECK(steps_until_killed("reduce=kill;;compute@5=kill;") == 4);
}

TEST_CASE("Failpoint: where nothing is armed nothing happens") {
  for (const std::string text : {"", "reduce=kill", "compute@6=kill", "compute@7-9=exit", ";"}) {
    Child child(text);
    CHECK(Exited(child.Wait(), 0));
    CHECK(child.Steps() == 5);
  }
  REQUIRE(ArmFailpoints(nullptr).ok());
  HitFailpoint("compute", 1);
}

TEST_CASE("Failpoint: exit ends the process with 70") {
  Child child("compute@2=exit");
  CHECK(Exited(child.Wait(), 70));
  CHECK(child.Steps() == 1);
}

TEST_CASE("Failpoint: a stopped process stands still until somebody continues it") {
  Child child("compute@2=stop");
  CHECK(WIFSTOPPED(child.Wait(WUNTRACED)));
  child.Continue();
  CHECK(Exited(child.Wait(), 0));
  CHECK(child.Steps() == 5);
}

TEST_CASE("Failpoint: stop and delay with a time go on by themselves, not before it") {
  for (const std::string text : {"compute@2=stop:150", "compute@2=delay:150"}) {
    const auto start = steady_clock::now();
    Child child(text);
    CHECK(Exited(child.Wait(), 0));
    CHECK(steady_clock::now() - start >= milliseconds(150));
    CHECK(child.Steps() == 5);
  }
}

TEST_CASE("Failpoint: who continues a stopped process holds none of its files and ends with it") {
  Child child("compute@2=stop:3600000");
  CHECK(WIFSTOPPED(child.Wait(WUNTRACED)));
  child.Kill();
  CHECK(Killed(child.Wait()));
  CHECK(child.Steps() == 1);  // hangs while another process holds the pipe
}

TEST_CASE("Failpoint: of the processes that share a token one acts, and the token names it") {
  const TemporaryFolder folder;
  const std::string token = folder / "token";
  std::vector<pid_t> killed;
  for (int i = 0; i < 4; ++i) {
    Child child("compute@3=kill!" + token);
    const pid_t pid = child.pid();
    const int status = child.Wait();
    if (Killed(status)) {
      killed.push_back(pid);
    } else {
      CHECK(Exited(status, 0));
    }
  }
  REQUIRE(killed.size() == 1);
  CHECK(ReadWhole(token) == "compute 3 " + std::to_string(killed[0]) + "\n");
}

TEST_CASE("Failpoint: without its gate it does not act, and a delay ends when its gate goes") {
  const TemporaryFolder folder;
  const std::string gate = folder / "gate";
  Child passes("compute=kill?" + gate);
  CHECK(Exited(passes.Wait(), 0));
  WriteWhole(gate, "");
  Child dies("compute@2=kill!" + folder / "token" + "?" + gate);
  CHECK(Killed(dies.Wait()));
  CHECK(dies.Steps() == 1);
  Child waits("compute@2=delay:3600000?" + gate);
  int status = 0;
  CHECK(waitpid(waits.pid(), &status, WNOHANG) == 0);
  std::filesystem::remove(gate);
  CHECK(Exited(waits.Wait(), 0));
  CHECK(waits.Steps() == 5);
}

TEST_CASE("Failpoint: a hold ends when its point says that it is over, or when its gate goes") {
  const TemporaryFolder folder;
  const std::string gate = folder / "gate";
  WriteWhole(gate, "");
  REQUIRE(ArmFailpoints(("boundary@2=hold:3600000?" + gate).c_str()).ok());
  int asked = 0;
  const auto third = [&] { return ++asked == 3; };
  HitFailpoint("boundary", 1, third);
  CHECK(asked == 0);
  HitFailpoint("boundary", 2, third);
  CHECK(asked == 3);
  HitFailpoint("boundary", 2, [&] {
    std::filesystem::remove(gate);
    return false;
  });
  CHECK_FALSE(std::filesystem::exists(gate));
  HitFailpoint("boundary", 2, third);
  CHECK(asked == 3);
  // Nothing but its gate ends a delay before its time.
  WriteWhole(gate, "");
  REQUIRE(ArmFailpoints(("boundary@2=delay:1?" + gate).c_str()).ok());
  HitFailpoint("boundary", 2, third);
  CHECK(asked == 3);
  REQUIRE(ArmFailpoints(nullptr).ok());
}

TEST_CASE("Failpoint: without a place for its token nobody acts") {
  const TemporaryFolder folder;
  Child child("compute=kill!" + folder / "missing/token");
  CHECK(Exited(child.Wait(), 0));
}

TEST_CASE(
    "Failpoint: a flip is what its place asks for, once with a token, and no action of a hit") {
  const TemporaryFolder folder;
  CHECK(FlipAt("state", 7).empty());
  REQUIRE(ArmFailpoints(("state@7=flip:slot!" + folder / "token").c_str()).ok());
  HitFailpoint("state", 7);
  CHECK(FlipAt("state", 6).empty());
  CHECK(FlipAt("compute", 7).empty());
  CHECK(FlipAt("state", 7) == "slot");
  CHECK(FlipAt("state", 7).empty());
  REQUIRE(ArmFailpoints(nullptr).ok());
}

TEST_CASE("Failpoint: text that cannot be read names the entry, and arms nothing") {
  for (const std::string entry : {"compute",          "=kill",
                                  "compute=",         "compute=die",
                                  "compute=kill:5",   "compute=exit:5",
                                  "compute=delay",    "compute=delay:",
                                  "compute=delay:0",  "compute=delay:-1",
                                  "compute=stop:x",   "compute=delay:99999999",
                                  "compute=flip",     "compute=flip:",
                                  "compute@=kill",    "compute@x=kill",
                                  "compute@3-=kill",  "compute@-3=kill",
                                  "compute@5-4=kill", "compute@1.5=kill",
                                  "@3=kill",          "compute=kill!",
                                  "compute=delay:1?", "compute=kill!?gate",
                                  "compute=hold:1",   "compute=hold?gate"}) {
    const Status status = ArmFailpoints(("compute=kill;" + entry).c_str());
    INFO(entry);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(Message(status).find("entry `" + entry + "`") != std::string::npos);
    HitFailpoint("compute", 3);
  }
}

}  // namespace
}  // namespace ringmaster
