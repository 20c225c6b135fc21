// GNU build ids: which link of a program or a library this is. Thread-safe (free functions).
#pragma once

#include <string>

namespace ringmaster {

// Of the program or library that `address` (of a function or an object in it) belongs to, as hex;
// "unknown" when it was linked without one.
[[nodiscard]] std::string BuildIdOf(const void* address);

}  // namespace ringmaster
