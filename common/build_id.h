// Which program this is: its version, its build, and what of it computes. Thread-safe (free
// functions).
#pragma once

#include <string>

namespace ringmaster {

// SHA-256, as hex, over the sources that results depend on, without their comments, with the
// compiler and its flags (common/CMakeLists.txt): part of the numerics class. Two builds of the
// same kernels have one, whatever else differs between them.
[[nodiscard]] std::string ComputeId();

// What --version prints: `ringctl 0.1.0 (build 1a2b3c4d5e6f, compute 0f1e2d3c4b5a)`. The version is
// that of project() in CMakeLists.txt, the build the GNU build id of the running program ("unknown"
// when it was linked without one), which tells one link from another; 12 digits of each.
[[nodiscard]] std::string VersionLine(const std::string& program);

}  // namespace ringmaster
