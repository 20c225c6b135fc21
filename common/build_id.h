// Which program this is: its version, and the GNU build id of a program or a library, which tells
// one link from another. Thread-safe (free functions).
#pragma once

#include <string>

namespace ringmaster {

// Of the program or library that `address` (of a function or an object in it) belongs to, as hex;
// "unknown" when it was linked without one.
[[nodiscard]] std::string BuildIdOf(const void* address);

// What --version prints: `ringctl 0.1.0 (build 1a2b3c4d5e6f)`. The version is that of project() in
// CMakeLists.txt, the build id that of the running program, its first 12 digits.
[[nodiscard]] std::string VersionLine(const std::string& program);

}  // namespace ringmaster
