#include "coordinator/store/data_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace ringmaster::coordinator {

StatusOr<std::unique_ptr<DataFolder>> DataFolder::Lock(const std::string& path) {
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(path, error).lexically_normal().string();
  if (!error) std::filesystem::create_directories(absolute + "/checkpoints", error);
  if (error) {
    return Error(absl::StatusCode::kUnavailable, "--data-dir {}: cannot be made: {}", path,
                 error.message());
  }
  const std::string name = absolute + "/lock";
  const int lock = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0) {
    return Error(absl::StatusCode::kUnavailable, "--data-dir {}: cannot open {}: {}", path, name,
                 std::strerror(errno));
  }
  std::unique_ptr<DataFolder> folder(new DataFolder(absolute, lock));
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    return FailedPrecondition(
        "--data-dir {}: another ringmaster uses it ({} is locked); stop that one, or choose "
        "another "
        "folder",
        path, name);
  }
  return folder;
}

DataFolder::~DataFolder() { close(lock_); }

}  // namespace ringmaster::coordinator
