// A lock on a folder of one program's own, so that two processes never share it. The kernel lets it
// go when the process is over, however it ended; who comes next right after a kill waits a while
// for that. Owned by what uses the folder; thread-compatible.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "common/status.h"

namespace ringmaster {

class FolderLock {
 public:
  struct Options {
    std::string flag;     // names the folder in messages: --state-dir
    std::string program;  // that uses such folders: ringworker
    std::chrono::milliseconds patience{10'000};
    // Told once, when it begins to wait; by default a line of the log.
    std::function<void(const std::string& line)> waits;
  };

  // Locks `folder`, which exists, by its file `lock`. FAILED_PRECONDITION: another process has it,
  // after all patience; UNAVAILABLE: the file cannot be used, and why. Signals do not end the wait.
  [[nodiscard]] static StatusOr<std::unique_ptr<FolderLock>> Take(const std::string& folder,
                                                                  const Options& options);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  explicit FolderLock(int file) : file_(file) {}
  const int file_;
};

}  // namespace ringmaster
