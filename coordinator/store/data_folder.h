// The coordinator's --data-dir: made if missing, and locked, so that a second coordinator on it is
// refused. Owned by the daemon; the lock is held until destruction. Thread-compatible.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "common/files.h"
#include "common/status.h"

namespace ringmaster::coordinator {

class DataFolder {
 public:
  // FAILED_PRECONDITION: another process holds it, after all patience; UNAVAILABLE: it cannot be
  // used, and why.
  [[nodiscard]] static StatusOr<std::unique_ptr<DataFolder>> Lock(
      const std::string& path, std::chrono::milliseconds patience = FolderLock::Options().patience);

  [[nodiscard]] std::string database() const { return path_ + "/ringmaster.db"; }
  [[nodiscard]] std::string checkpoints() const { return path_ + "/checkpoints"; }
  [[nodiscard]] std::string logs() const { return path_ + "/logs"; }

 private:
  DataFolder(std::string path, std::unique_ptr<FolderLock> lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  const std::string path_;  // absolute
  const std::unique_ptr<FolderLock> lock_;
};

}  // namespace ringmaster::coordinator
