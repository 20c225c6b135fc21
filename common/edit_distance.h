// How far two words are apart: for "did you mean" in errors. Thread-safe (free function).
#pragma once

#include <cstddef>
#include <string>

namespace ringmaster {

// The fewest insertions, deletions and replacements of a character that turn `a` into `b`
// (Levenshtein). Takes a.size() * b.size() steps.
[[nodiscard]] size_t EditDistance(const std::string& a, const std::string& b);

}  // namespace ringmaster
