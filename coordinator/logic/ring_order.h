// The order of a ring in which no broken link is used. Pure; thread-safe (free functions).
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ringmaster::coordinator {

// Two workers that do not reach each other, the lesser name first.
using BadPair = std::pair<std::string, std::string>;
[[nodiscard]] BadPair MakeBadPair(const std::string& a, const std::string& b);

// `names` (distinct) so that no bad pair are neighbours, the last and the first being neighbours
// too; as near to the given order as the first solution found from it. Nothing when there is none,
// or none was found in a bounded search.
[[nodiscard]] std::optional<std::vector<std::string>> OrderRing(
    const std::vector<std::string>& names, const std::set<BadPair>& bad);

}  // namespace ringmaster::coordinator
