// The coordinator's --data-dir: made if missing, and locked, so that a second coordinator on it is
// refused. Owned by the daemon; the lock is held until destruction. Thread-compatible.
#pragma once

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <system_error>
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
  [[nodiscard]] std::string socket() const { return path_ + "/ringmaster.sock"; }
  [[nodiscard]] std::string pki() const { return path_ + "/pki"; }
  [[nodiscard]] std::string logs() const { return path_ + "/logs"; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // Random, made by the first coordinator on it, the same for all that follow.
  [[nodiscard]] StatusOr<std::string> Secret() const;

 private:
  DataFolder(std::string path, std::unique_ptr<FolderLock> lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  const std::string path_;  // absolute
  const std::unique_ptr<FolderLock> lock_;
};

// What the disk refused: UNAVAILABLE, since it may work again later. Thread-safe (free functions).

// `what` as in "rename to": followed by the path and the system's reason.
[[nodiscard]] inline Status DiskError(const std::string& what, const std::string& path,
                                      const std::error_code& error) {
  return Error(absl::StatusCode::kUnavailable, "{} {}: {}", what, path, error.message());
}

// The reason is in errno.
[[nodiscard]] inline Status DiskError(const std::string& what, const std::string& path) {
  return DiskError(what, path, std::error_code(errno, std::generic_category()));
}

}  // namespace ringmaster::coordinator
