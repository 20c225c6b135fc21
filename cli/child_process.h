// Programs that ringctl starts: daemons of `ringctl up`, and those that lie beside it, run in its
// place or asked. Main thread only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "common/files.h"
#include "common/status.h"

namespace ringmaster::cli {

// One daemon that `ringctl up` started: its output as lines, its end, and no orphan whatever
// happens. Owned by LocalCluster; main thread only.
class ChildProcess {
 public:
  // Starts `arguments[0]` in a process group of its own (a terminal's Ctrl-C is for the parent,
  // which stops its children in order); the system sends it SIGTERM when this process dies. stdout
  // and stderr are one stream. Call before the process has other threads.
  static StatusOr<ChildProcess> Start(const std::string& name,
                                      const std::vector<std::string>& arguments);
  // Kills what still runs.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  // Hands every complete line that has arrived to `sink`, never blocks; at the end of the stream
  // the rest, and output() is -1 from then on.
  void ReadLines(const std::function<void(const std::string&)>& sink);
  // True from the first call that finds it ended.
  bool Reap();
  void Signal(int signal) const;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int output() const { return output_.get(); }  // to poll
  [[nodiscard]] bool running() const { return pid_ > 0; }
  // Valid when it ended: true for exit code 0; and how it ended, in words.
  [[nodiscard]] bool ended_well() const { return wait_status_ == 0; }
  [[nodiscard]] std::string HowItEnded() const;

 private:
  ChildProcess(std::string name, pid_t pid, OwnedFile output);

  std::string name_;
  pid_t pid_ = -1;  // -1 when reaped
  OwnedFile output_;
  int wait_status_ = 0;
  std::string partial_;  // a line whose end has not come
};

// The programs that lie beside ringctl: where they are, and one of them run in its place. Main
// thread only.

// The folder of ringctl, which must hold all of `programs`.
[[nodiscard]] StatusOr<std::string> FolderOf(const std::vector<std::string>& programs);

// Runs arguments[0] with this process's own streams and waits for its end, which is its exit code;
// 128 + N when signal N ended it. The system sends it SIGTERM when this process dies.
[[nodiscard]] StatusOr<int> RunToEnd(const std::vector<std::string>& arguments);

// Runs arguments[0] with this process's own stderr and returns what it printed, at most 8 MiB.
// FAILED_PRECONDITION: it ended neither with 0 nor, having printed anything, with `good`. UNKNOWN:
// it was killed after three minutes.
[[nodiscard]] StatusOr<std::string> OutputOf(const std::vector<std::string>& arguments,
                                             int good = 0);

}  // namespace ringmaster::cli
