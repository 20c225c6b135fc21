// A folder with a key in it: this user's alone (0700), and so is every file of it (0600), or
// nothing of it is used. Open once, and read through one descriptor: what is read belongs together
// even while somebody puts another folder in its place. Owned by who reads; thread-compatible.
#pragma once

#include <string>
#include <utility>

#include "common/files.h"
#include "common/pki/key.h"
#include "common/status.h"

namespace ringmaster::pki {

// The path, absolute and without a slash at its end: there is a folder above it, and a name.
[[nodiscard]] std::string WholePath(const std::string& path);

// UNAVAILABLE, with the words of errno.
[[nodiscard]] Status CannotWrite(const std::string& what, const std::string& path);

class PrivateFolder {
 public:
  // NOT_FOUND: there is none. PERMISSION_DENIED: it is another user's, or others may enter it, with
  // the command that mends it. FAILED_PRECONDITION: it is no folder.
  [[nodiscard]] static StatusOr<PrivateFolder> Open(const std::string& path);

  // A file, whole; at most 1 MiB. NOT_FOUND: there is none. PERMISSION_DENIED: it is another
  // user's, or open to others, with the command that mends it; a symbolic link.
  // FAILED_PRECONDITION: no plain file, or a larger one.
  [[nodiscard]] StatusOr<Secret> Read(const std::string& name) const;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  PrivateFolder(std::string path, OwnedFile folder)
      : path_(std::move(path)), folder_(std::move(folder)) {}
  std::string path_;
  OwnedFile folder_;
};

}  // namespace ringmaster::pki
