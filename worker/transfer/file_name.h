// Names of files as peers send them: part of no path before they were looked at; and how many are
// taken. Thread-safe (free functions).
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

namespace ringmaster::worker {

inline constexpr size_t kMaxFiles = 64;  // of one state or checkpoint

// A name without folders that a checkpoint may have: letters, digits, `.`, `_`, `-`, not hidden.
[[nodiscard]] inline bool IsPlainFileName(const std::string& name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 128 && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), allowed);
}

}  // namespace ringmaster::worker
