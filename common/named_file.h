// A file that the command line names, read whole. Thread-safe (free function).
#pragma once

#include <string>

#include "common/status.h"

namespace ringmaster {

// `-` is stdin. INVALID_ARGUMENT: `what` it is, its path, and why it cannot be read.
[[nodiscard]] StatusOr<std::string> ReadNamedFile(const std::string& what, const std::string& path);

}  // namespace ringmaster
