// The numbers of a text file, converted once: a file of little-endian numbers in --state-dir, which
// is read at random in the text's place. It ends with what its arrays are, and the SHA-256 of all
// before that; one that is damaged, or of another version, is made again. Thread-safe (free
// functions).
#pragma once

#include <functional>
#include <string>

#include "common/data/beneath.h"
#include "common/data/format.h"
#include "common/data/hash_cache.h"
#include "common/status.h"

namespace ringmaster::data {

struct ConvertedFile {
  OwnedFile descriptor;
  FileIdentity identity;
  FileLayout layout;  // arrays and others
};

// The file `name`.rows of the cache's folder, which `convert` writes where it is missing. Without a
// folder it lies where temporary files do, without a name. `name` says all that it depends on. When
// one was written, others of the folder go (kept_files.h).
// UNAVAILABLE: it cannot be written; CANCELLED: the cache's stop; else what `convert` says.
[[nodiscard]] StatusOr<ConvertedFile> OpenConverted(
    const std::string& name, HashCache* cache,
    const std::function<StatusOr<FileLayout>(const Append& append)>& convert);

// Removes what conversions that were killed left in a state folder. For who has it alone, at its
// start.
void SweepConversions(const std::string& state_dir);

}  // namespace ringmaster::data
