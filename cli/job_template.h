// The job file that `ringctl init` writes: every key with its default, its range and what it is
// for, from the rules of job.proto. Thread-safe (a free function).
#pragma once

#include <string>

namespace ringmaster::cli {

// Parses and validates as it stands. A line `# key: value` is a key that may be uncommented, a
// mapping with the lines below it; `# or key: value` another choice, in place of the key above.
[[nodiscard]] std::string JobTemplate();

}  // namespace ringmaster::cli
