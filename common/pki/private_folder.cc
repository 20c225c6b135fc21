#include "common/pki/private_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace ringmaster::pki {
namespace {

constexpr off_t kMaxFileBytes = 1 << 20;

// Of what could not be opened.
Status OpenError(const std::string& path) {
  const auto code =
      errno == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kFailedPrecondition;
  if (errno == ELOOP) {
    return Error(absl::StatusCode::kPermissionDenied,
                 "{} is a symbolic link; put the file itself there", path);
  }
  return Error(code, "cannot open {}: {}", path, std::strerror(errno));
}

// Whether it is this user's alone.
Status CheckPrivate(const struct stat& found, const std::string& path, const char* mode) {
  constexpr auto kDenied = absl::StatusCode::kPermissionDenied;
  if (found.st_uid != geteuid()) {
    return Error(kDenied, "{} belongs to user {}, and this process is user {}: `chown {} {}`", path,
                 found.st_uid, geteuid(), geteuid(), path);
  }
  if ((found.st_mode & 0077) != 0) {
    return Error(kDenied, "{} has mode {:04o}, so that others may use it: `chmod {} {}`", path,
                 found.st_mode & 07777, mode, path);
  }
  return absl::OkStatus();
}

}  // namespace

std::string WholePath(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::absolute(path, ignored).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).string();
}

Status CannotWrite(const std::string& what, const std::string& path) {
  return Error(absl::StatusCode::kUnavailable, "cannot {} {}: {}", what, path,
               std::strerror(errno));
}

StatusOr<PrivateFolder> PrivateFolder::Open(const std::string& path) {
  OwnedFile folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat found = {};
  if (!folder.valid() || fstat(folder.get(), &found) != 0) return OpenError(path);
  RING_RETURN_IF_ERROR(CheckPrivate(found, path, "700"));
  return PrivateFolder(path, std::move(folder));
}

StatusOr<Secret> PrivateFolder::Read(const std::string& name) const {
  const std::string path = path_ + "/" + name;
  // A FIFO would wait for its other end.
  const OwnedFile file(
      openat(folder_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat found = {};
  if (!file.valid() || fstat(file.get(), &found) != 0) return OpenError(path);
  RING_RETURN_IF_ERROR(CheckPrivate(found, path, "600"));
  if (!S_ISREG(found.st_mode) || found.st_size > kMaxFileBytes) {
    return FailedPrecondition("{} is no plain file of at most {} bytes", path, kMaxFileBytes);
  }
  const auto bytes = static_cast<size_t>(found.st_size);
  Secret content(ReadText(file.get(), 0, bytes));
  if (content.text().size() < bytes) return FailedPrecondition("cannot read {} to its end", path);
  return content;
}

}  // namespace ringmaster::pki
