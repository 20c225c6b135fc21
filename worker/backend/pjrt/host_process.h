// The process in which a plugin runs, as the daemon sees it: started, read on stderr, ended, and
// what became of it. Owned by PluginHost and the lanes that lead into it. Thread-safe. It knows
// nothing of what is said on the control socket.
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

class HostProcess {
 public:
  // FAILED_PRECONDITION: the program cannot be started, and why.
  [[nodiscard]] static StatusOr<std::shared_ptr<HostProcess>> Start(const std::string& program);
  // Closes the control socket, and ends what does not end by itself within a few seconds.
  ~HostProcess();
  HostProcess(const HostProcess&) = delete;
  HostProcess& operator=(const HostProcess&) = delete;

  [[nodiscard]] int control() const { return control_.get(); }
  [[nodiscard]] pid_t id() const;
  [[nodiscard]] bool ended() const;

  // Ends it at once because of `reason`, which is then what became of it; of two the first.
  void Kill(const Status& reason);
  // What became of it, once it has ended: the reason of Kill, or UNAVAILABLE with its signal or
  // exit code and what it said last. It is expected to end: what does not within seconds is killed.
  [[nodiscard]] Status Fate();

 private:
  explicit HostProcess(OwnedFile control) : control_(std::move(control)) {}

  // The thread's: it starts the process, because that ends with the thread that did.
  void Follow(const std::string& program, OwnedFile other_end);
  [[nodiscard]] Status Spawn(const std::string& program, int other_end, OwnedFile* errors);
  // Reads stderr until the process has ended.
  void ReadErrors(int errors, int process);
  void TakeErrors(int errors);
  void TakeLine(const std::string& line);
  void Reap();

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
