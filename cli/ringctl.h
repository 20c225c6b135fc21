// ringctl from its arguments to its exit code. Main thread only.
#pragma once

namespace ringmaster::cli {

// Parses the command line, runs the command, prints an error if there is one. A token in `argv` is
// blanked.
[[nodiscard]] int Run(int argc, char** argv);

}  // namespace ringmaster::cli
