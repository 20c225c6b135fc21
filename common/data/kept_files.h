// What a state folder keeps only to save time: of each kind of such files the 64 that were used
// last, which take no more than half of what they have and what is free there. Whoever has written
// one drops the others (DropOldest). A file's time of access says when it was used, and is set,
// whatever the disk's mount says of such times; its time of change is a part of what it is.
// Thread-safe (free functions); processes may share a folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "common/files.h"

namespace ringmaster::data {

// A kind, by how its files' names end and begin, and how much of it is kept.
struct KeptFiles {
  std::string suffix, prefix = {};
  size_t files = 64;
  std::optional<uint64_t> bytes = {};  // by default half, as above
};

// It is used now, and stays until it is closed.
void MarkUsed(const OwnedFile& file);

// All of a file, which is used now; nothing where it cannot be read.
[[nodiscard]] std::optional<std::string> ReadKept(const std::string& path);

// Removes those that were used longest ago, until no more are left than `kept` says; the one that
// was used last stays. One that somebody has open and marked, in whatever process, stays, and so
// does what is of no such name.
void DropOldest(const std::string& folder, const KeptFiles& kept);

}  // namespace ringmaster::data
