// Files and folders of a daemon's own: nobody else's to read, whatever the umask, and written so
// that they are there, whole, after a crash: temporary name, fsync, rename, fsync of the folder.
// Thread-safe (free functions).
#pragma once

#include <sys/types.h>

#include <string>

#include "common/status.h"

namespace ringmaster {

// Replaces `path` by `content`, whatever mode it had by `mode`. After an error the old file is
// untouched and no temporary is left.
[[nodiscard]] Status WriteDurably(const std::string& path, const std::string& content,
                                  mode_t mode = 0600);

// Makes a folder, and those above it that are missing, for this user alone (0700). One that is
// there is made so, too; but a folder that somebody else named is kept as it is, with a warning
// when everybody may read it or others may write to it. UNAVAILABLE: it cannot be made, or is none.
enum class IfThere { kTighten, kKeep };
[[nodiscard]] Status MakePrivateFolder(const std::string& path, IfThere there = IfThere::kTighten);

// Makes an empty file for this user alone (0600), or makes one that is there so. Never through a
// symbolic link.
[[nodiscard]] Status MakePrivateFile(const std::string& path);

// Makes the names in a folder durable.
[[nodiscard]] Status SyncFolder(const std::string& folder);

}  // namespace ringmaster
