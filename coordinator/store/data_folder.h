// The coordinator's --data-dir: made if missing, and locked, so that a second coordinator on it is
// refused. Owned by the daemon; the lock is held until destruction. Thread-compatible.
#pragma once

#include <memory>
#include <string>

#include "common/status.h"

namespace ringmaster::coordinator {

class DataFolder {
 public:
  // FAILED_PRECONDITION: another process holds it; UNAVAILABLE: it cannot be used, and why.
  [[nodiscard]] static StatusOr<std::unique_ptr<DataFolder>> Lock(const std::string& path);
  ~DataFolder();
  DataFolder(const DataFolder&) = delete;
  DataFolder& operator=(const DataFolder&) = delete;

  [[nodiscard]] std::string database() const { return path_ + "/ringmaster.db"; }
  [[nodiscard]] std::string checkpoints() const { return path_ + "/checkpoints"; }
  [[nodiscard]] std::string logs() const { return path_ + "/logs"; }

 private:
  DataFolder(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  const std::string path_;  // absolute
  const int lock_;          // file descriptor
};

}  // namespace ringmaster::coordinator
