// A process that this one started and talks with: read on stdout and stderr, ended, and what became
// of it. Owned by who started it and by the lanes that lead into it. Thread-safe. It knows nothing
// of what is said on the control socket. One that not even SIGKILL ends, as a call into a sick
// driver, is waited for no longer than a limit says, and left behind.
#pragma once

#include <absl/base/thread_annotations.h>

#include <sys/socket.h>
#include <sys/types.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/files.h"
#include "common/mutex.h"
#include "common/status.h"

namespace ringmaster {

// Why a process is killed that nobody waits for any more.
[[nodiscard]] inline Status JobEnds() { return absl::CancelledError("the job ends"); }

struct SubprocessOptions {
  std::string called = "the process";    // in messages
  std::string thread = "subprocess";     // the name of the one that reads what it says
  std::string log = "subprocess";        // what each of its lines begins with in this process's log
  std::vector<std::string> command;      // the program's path first
  std::vector<std::string> environment;  // NAME=VALUE
  int control_type = SOCK_STREAM;
  std::chrono::milliseconds start_limit{30'000};  // of the process, not of what it does then
  // How long it may take to end by itself, and again once it was killed.
  std::chrono::milliseconds end_limit{5'000};
};
// What comes out of a pipe, line by line, of which none is longer than kMaxLogText. One thread's.
class PipeLines {
 public:
  // Each of them is on one line, whatever it holds.
  explicit PipeLines(std::function<void(const std::string& line)> take) : take_(std::move(take)) {}
  // What is there, and at most so many bytes or one piece more: others are read, too, while one
  // floods. `file` does not block. False: its end has come, and the last line with it.
  bool Read(int file, size_t most = 256 << 10);
  // What is there of a line whose end will not come.
  void End();

 private:
  const std::function<void(const std::string& line)> take_;
  std::string partial_;
};

// What became of a process, by its wait status: was killed by signal 6 (Aborted).
[[nodiscard]] std::string DescribeExit(int status);
[[nodiscard]] bool WasKilled(int status);  // by SIGKILL

// What this process has, as SubprocessOptions::environment.
[[nodiscard]] std::vector<std::string> OwnEnvironment();

class Subprocess {
 public:
  static constexpr int kControlFile = 3;
  // Its end of the control socket is file 3. What a terminal or a service manager says to all
  // processes does not come to it. FAILED_PRECONDITION: the program cannot be started, and why.
  // DEADLINE_EXCEEDED: not within the limit, and it is no more.
  [[nodiscard]] static StatusOr<std::shared_ptr<Subprocess>> Start(SubprocessOptions options);
  // Closes the control socket, and kills what does not end by itself, or does not start.
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  [[nodiscard]] int control() const { return control_.get(); }
  [[nodiscard]] pid_t id() const;
  [[nodiscard]] bool ended() const;
  // Or was killed and is about to.
  [[nodiscard]] bool doomed() const;

  // Ends it at once because of `reason`, which is then what became of it; of two the first.
  void Kill(const Status& reason);
  // What became of it: the reason of Kill, or UNAVAILABLE with its signal or exit code, and what it
  // said last. It is expected to end: what does not within the limit is killed, and UNAVAILABLE
  // says that this did not help.
  [[nodiscard]] Status Fate();
  // Likewise, whether SIGKILL ended it that is not ours: somebody's, or the kernel's without
  // memory.
  [[nodiscard]] bool killed();

 private:
  Subprocess(SubprocessOptions options, OwnedFile control, OwnedFile given_up)
      : options_(std::move(options)),
        given_up_(std::move(given_up)),
        control_(std::move(control)) {}

  // Of the thread that starts it: comes back when it has, or was killed on its way.
  void BreakOffStart() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether it ends, by SIGKILL if need be.
  bool AwaitEnd() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // The thread's: it starts the process, because that ends with the thread that did.
  void Follow(OwnedFile other_end);
  // `process` is a file that is readable once it has ended.
  [[nodiscard]] Status Spawn(int other_end, OwnedFile* errors, OwnedFile* process);
  // Reads stderr until the process has ended; false: until it was given up.
  [[nodiscard]] bool ReadErrors(int errors, int process);
  void TakeLine(const std::string& line);
  void Reap();

  const SubprocessOptions options_;
  const OwnedFile given_up_;  // an event: nobody waits for its end any more
  OwnedFile control_;
  PipeLines lines_{[this](const std::string& line) { TakeLine(line); }};  // the thread's alone

  mutable Mutex mu_;
  mutable Condition changed_;
  std::optional<Status> started_ ABSL_GUARDED_BY(mu_);
  pid_t thread_id_ ABSL_GUARDED_BY(mu_) = -1;
  pid_t id_ ABSL_GUARDED_BY(mu_) = -1;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool by_us_ ABSL_GUARDED_BY(mu_) = false;            // it did not end by itself
  bool killed_ ABSL_GUARDED_BY(mu_) = false;           // by SIGKILL
  Status reason_ ABSL_GUARDED_BY(mu_);                 // of Kill
  std::string exit_ ABSL_GUARDED_BY(mu_);              // killed by signal 6 (Aborted)
  std::deque<std::string> last_ ABSL_GUARDED_BY(mu_);  // lines of stderr

  std::jthread thread_;  // last, so that all else is there as long as it runs
};

}  // namespace ringmaster
