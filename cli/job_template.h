// The job file that `ringctl init` writes: every key with its default and its range. A constant.
#pragma once

namespace ringmaster::cli {

// Parses and validates as it stands. A line `# key: value` is a key that may be uncommented; a line
// `#   key: value` shows another choice for the key above.
extern const char kJobTemplate[];

}  // namespace ringmaster::cli
