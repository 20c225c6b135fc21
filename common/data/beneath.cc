#include "common/data/beneath.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

namespace ringmaster::data {
namespace {

// How often one path is resolved at most while others rename beside it.
constexpr int kMostResolutions = 64;

// O_NONBLOCK: opening a pipe that nobody writes to must not hang.
int OpenFlags(Wanted wanted) {
  return O_RDONLY | O_CLOEXEC | O_NONBLOCK | (wanted == Wanted::kFolder ? O_DIRECTORY : 0);
}

int OpenInside(int folder, const std::string& path, Wanted wanted) {
  open_how how = {};
  how.flags = static_cast<uint64_t>(OpenFlags(wanted));
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  // EAGAIN: something on this machine was renamed or mounted, whatever it was, while a `..` was
  // followed, so that the kernel cannot say whether the path stays inside: it wants to be asked
  // again (man 2 openat2).
  int opened = -1;
  for (int tries = 0; opened < 0 && tries < kMostResolutions; ++tries) {
    opened = static_cast<int>(syscall(SYS_openat2, folder, path.c_str(), &how, sizeof(how)));
    if (opened < 0 && errno != EAGAIN) break;
  }
  // EPERM: seccomp profiles older than the call.
  if (opened < 0 && (errno == ENOSYS || errno == EPERM)) {
    return OpenWithoutLinks(folder, path, wanted);
  }
  return opened;
}

Status OpenError(const std::string& path, int error) {
  if (error == ENOENT) return Error(absl::StatusCode::kNotFound, "{} does not exist", path);
  if (error == EXDEV || error == ELOOP) {
    return InvalidArgument("{} leads out of its folder by `..` or a symbolic link", path);
  }
  if (error == ENOTDIR) return InvalidArgument("{} is not a folder", path);
  return Error(absl::StatusCode::kUnavailable, "cannot open {}: {}", path, std::strerror(error));
}

}  // namespace

// One component at a time, never following a link.
int OpenWithoutLinks(int folder, const std::string& path, Wanted wanted) {
  std::istringstream components(path);
  std::string component, next;
  OwnedFile at(fcntl(folder, F_DUPFD_CLOEXEC, 0));
  std::getline(components, component, '/');
  while (true) {
    const bool last = !std::getline(components, next, '/');
    if (component == ".." || (component.empty() && !last)) {
      errno = EXDEV;
      return -1;
    }
    const int flags = last ? OpenFlags(wanted) : OpenFlags(Wanted::kFolder);
    const int opened = openat(at.get(), component.c_str(), flags | O_NOFOLLOW);
    if (opened < 0 || last) return opened;
    at = OwnedFile(opened);
    component = next;
  }
}

StatusOr<OwnedFile> OpenFolder(const std::string& root) {
  const int opened = open(root.c_str(), OpenFlags(Wanted::kFolder));
  if (opened < 0) return OpenError(root, errno);
  return OwnedFile(opened);
}

StatusOr<OwnedFile> OpenBeneath(const OwnedFile& folder, const std::string& path, Wanted wanted) {
  if (path.find('\0') != std::string::npos) return InvalidArgument("a path holds a zero byte");
  OwnedFile file(OpenInside(folder.get(), path, wanted));
  if (!file.valid()) return OpenError(path, errno);
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) return OpenError(path, errno);
  if (wanted == Wanted::kFile && !S_ISREG(status.st_mode)) {
    return InvalidArgument("{} is not a regular file", path);
  }
  return file;
}

StatusOr<FolderEntries> ListFolder(const OwnedFile& folder, const std::string& path) {
  RING_ASSIGN_OR_RETURN(const OwnedFile opened, OpenBeneath(folder, path, Wanted::kFolder));
  // A descriptor of its own, because closedir closes it.
  const int copy = openat(opened.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const listing = copy < 0 ? nullptr : fdopendir(copy);
  if (listing == nullptr) {
    return Error(absl::StatusCode::kUnavailable, "cannot list {}: {}", path, std::strerror(errno));
  }
  FolderEntries entries;
  while (const dirent* const entry = readdir(listing)) {
    const std::string name = entry->d_name;
    if (name.starts_with('.')) continue;
    bool is_folder = entry->d_type == DT_DIR;
    if (entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN) {
      struct stat status = {};
      is_folder = fstatat(opened.get(), name.c_str(), &status, 0) == 0 && S_ISDIR(status.st_mode);
    }
    (is_folder ? entries.folders : entries.files).push_back(name);
  }
  closedir(listing);
  std::ranges::sort(entries.folders);
  std::ranges::sort(entries.files);
  return entries;
}

}  // namespace ringmaster::data
