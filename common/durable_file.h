// Writing a file so that it is there, whole, after a crash: temporary name, fsync, rename, fsync of
// the folder. Thread-safe (free functions).
#pragma once

#include <sys/types.h>

#include <string>

#include "common/status.h"

namespace ringmaster {

// Replaces `path` by `content`, whatever mode it had by `mode`. After an error the old file is
// untouched and no temporary is left.
[[nodiscard]] Status WriteDurably(const std::string& path, const std::string& content,
                                  mode_t mode = 0600);

// Makes the names in a folder durable.
[[nodiscard]] Status SyncFolder(const std::string& folder);

}  // namespace ringmaster
