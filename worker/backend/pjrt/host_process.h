// The process in which a plugin runs, as the daemon sees it: started, read on stderr, ended, and
// what became of it. Owned by PluginHost and the lanes that lead into it. Thread-safe. It knows
// nothing of what is said on the control socket. One that not even SIGKILL ends, as a call into a
// sick driver, is waited for no longer than a limit says, and left behind.
#pragma once

#include <absl/base/thread_annotations.h>

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "common/files.h"
#include "common/mutex.h"
#include "common/status.h"

namespace ringmaster::pjrt {

// Why a process is killed that nobody waits for any more.
[[nodiscard]] inline Status JobEnds() { return absl::CancelledError("the job ends"); }

class HostProcess {
 public:
  // FAILED_PRECONDITION: the program cannot be started, and why. `end_limit`: how long it may take
  // to end by itself, and again once it was killed.
  [[nodiscard]] static StatusOr<std::shared_ptr<HostProcess>> Start(
      const std::string& program, std::chrono::milliseconds end_limit = kEndLimit);
  // Closes the control socket, and kills what does not end by itself.
  ~HostProcess();
  HostProcess(const HostProcess&) = delete;
  HostProcess& operator=(const HostProcess&) = delete;

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

 private:
  static constexpr std::chrono::milliseconds kEndLimit{5'000};

  HostProcess(OwnedFile control, OwnedFile given_up, std::chrono::milliseconds end_limit)
      : end_limit_(end_limit), given_up_(std::move(given_up)), control_(std::move(control)) {}

  // Whether it ends, by SIGKILL if need be.
  bool AwaitEnd() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // The thread's: it starts the process, because that ends with the thread that did.
  void Follow(const std::string& program, OwnedFile other_end);
  // `process` is a file that is readable once it has ended.
  [[nodiscard]] Status Spawn(const std::string& program, int other_end, OwnedFile* errors,
                             OwnedFile* process);
  // Reads stderr until the process has ended; false: until it was given up.
  [[nodiscard]] bool ReadErrors(int errors, int process);
  void TakeErrors(int errors);
  void TakeLine(const std::string& line);
  void Reap();

  const std::chrono::milliseconds end_limit_;
  const OwnedFile given_up_;  // an event: nobody waits for its end any more
  OwnedFile control_;
  std::string partial_;  // of a line; the thread's alone

  mutable Mutex mu_;
  mutable Condition changed_;
  std::optional<Status> started_ ABSL_GUARDED_BY(mu_);
  pid_t id_ ABSL_GUARDED_BY(mu_) = -1;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  Status reason_ ABSL_GUARDED_BY(mu_);                 // of Kill
  std::string exit_ ABSL_GUARDED_BY(mu_);              // killed by signal 6 (Aborted)
  std::deque<std::string> last_ ABSL_GUARDED_BY(mu_);  // lines of stderr

  std::jthread thread_;  // pjrt-host; last, so that all else is there as long as it runs
};

}  // namespace ringmaster::pjrt
