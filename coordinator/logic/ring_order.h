// Which links of a ring are broken, and the order of its members in which none of them is used.
// Functions are pure and thread-safe.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/logic/event.h"

namespace ringmaster::coordinator {

// Two workers that do not reach each other, the lesser name first.
using BadPair = std::pair<std::string, std::string>;
[[nodiscard]] BadPair MakeBadPair(const std::string& a, const std::string& b);

// `names` (distinct) so that no bad pair are neighbours, the last and the first being neighbours
// too; as near to the given order as the first solution found from it. Nothing when there is none,
// or none was found in a bounded search.
[[nodiscard]] std::optional<std::vector<std::string>> OrderRing(
    const std::vector<std::string>& names, const std::set<BadPair>& bad);

// Who accused whom of being silent, and which links are therefore not to be used. Owned by Run,
// loop thread only. It knows nothing of who is alive: an accusation counts only when Run says that
// both acknowledged the fence which it caused.
struct Accusation {
  std::string accuser, accused;
};

class Suspicions {
 public:
  static constexpr std::chrono::milliseconds kAgain{10'000};  // a second time within this evicts
  static constexpr std::chrono::milliseconds kRemembered{300'000};  // a bad link

  // Both ends of a link are alive although one accused the other. True: again.
  [[nodiscard]] bool Add(const Accusation& accusation, Now now);
  // Links that are not to be used.
  [[nodiscard]] std::set<BadPair> BadPairs(Now now) const;
  // How many accused it within kAgain.
  [[nodiscard]] size_t AccusersOf(const std::string& worker, Now now) const;
  // It is out: if it comes back its links are tried again.
  void Forget(const std::string& worker);

 private:
  std::map<BadPair, std::chrono::milliseconds> pairs_;  // when each was seen last
  std::map<std::string, std::map<std::string, std::chrono::milliseconds>> accusers_;  // by accused
};

}  // namespace ringmaster::coordinator
