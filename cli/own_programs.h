// The programs that lie beside ringctl: where they are, and one of them run in its place. Main
// thread only.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"

namespace ringmaster::cli {

// The folder of ringctl, which must hold all of `programs`.
[[nodiscard]] StatusOr<std::string> FolderOf(const std::vector<std::string>& programs);

// Runs arguments[0] with this process's own streams and waits for its end, which is its exit code;
// 128 + N when signal N ended it. The system sends it SIGTERM when this process dies.
[[nodiscard]] StatusOr<int> RunToEnd(const std::vector<std::string>& arguments);

// Runs arguments[0] with this process's own stderr and returns what it printed, at most 64 KiB.
// FAILED_PRECONDITION: it did not end with 0. UNKNOWN: it was killed after a minute.
[[nodiscard]] StatusOr<std::string> OutputOf(const std::vector<std::string>& arguments);

}  // namespace ringmaster::cli
