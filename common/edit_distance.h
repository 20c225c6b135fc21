// How far two words are apart, and the known word that somebody meant: the only "did you mean" of
// every program. Thread-safe (free functions).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ringmaster {

// The fewest insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`
// (optimal string alignment). Takes a.size() * b.size() steps.
[[nodiscard]] size_t EditDistance(const std::string& a, const std::string& b);

// The candidate with the fewest edits to `word`, the first of several: one edit in words of up to
// four letters, two in longer ones, never more than a third of the letters. As near as one edit is
// a candidate that begins with `word`, or has a part, behind `_`, that does. Empty when none is
// near: a wild guess is worse than none.
[[nodiscard]] std::string Nearest(const std::string& word,
                                  const std::vector<std::string>& candidates);

}  // namespace ringmaster
