// Opens files that lie beneath a folder and nowhere else, whatever `..` or symbolic links say.
// Thread-safe (free functions).
#pragma once

#include <string>
#include <vector>

#include "common/files.h"
#include "common/status.h"

namespace ringmaster::data {

enum class Wanted { kFolder, kFile };

// `root` as the user gave it; symbolic links in it are the user's own.
[[nodiscard]] StatusOr<OwnedFile> OpenFolder(const std::string& root);

// `path` relative to `folder`. NOT_FOUND when there is none; INVALID_ARGUMENT when it leads out of
// `folder` or is not what is wanted (a pipe or a device is no file). Symbolic links are followed
// while they stay inside; on a kernel without openat2 (before 5.6) every link is refused.
[[nodiscard]] StatusOr<OwnedFile> OpenBeneath(const OwnedFile& folder, const std::string& path,
                                              Wanted wanted);

// The names in a folder, but for those that begin with a dot; both lists are sorted by their bytes.
// A link counts as what it leads to.
struct FolderEntries {
  std::vector<std::string> folders, files;
};
// `path` relative to `folder`; errors as OpenBeneath.
[[nodiscard]] StatusOr<FolderEntries> ListFolder(const OwnedFile& folder, const std::string& path);

// What OpenBeneath falls back to without openat2: a descriptor, or -1 and errno.
[[nodiscard]] int OpenWithoutLinks(int folder, const std::string& path, Wanted wanted);

}  // namespace ringmaster::data
