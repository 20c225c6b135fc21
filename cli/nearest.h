// "Did you mean": the known word that is nearest to a mistyped one. Thread-safe (free functions).
#pragma once

#include <string>
#include <vector>

namespace ringmaster::cli {

// The candidate with the fewest edits (insert, remove, replace, swap neighbours), or one that
// has a part, between `_`, that starts with `word`; empty when none is near: at most a third of the
// word may differ.
[[nodiscard]] std::string Nearest(const std::string& word,
                                  const std::vector<std::string>& candidates);

}  // namespace ringmaster::cli
