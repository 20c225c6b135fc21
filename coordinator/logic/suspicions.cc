#include "coordinator/logic/suspicions.h"

#include <algorithm>

namespace ringmaster::coordinator {

bool Suspicions::Add(const Accusation& accusation, Now now) {
  accusers_[accusation.accused][accusation.accuser] = now.steady;
  const auto [pair, fresh] =
      pairs_.try_emplace(MakeBadPair(accusation.accuser, accusation.accused), now.steady);
  const bool again = !fresh && now.steady - pair->second <= kAgain;
  pair->second = now.steady;
  return again;
}

std::set<BadPair> Suspicions::BadPairs(Now now) const {
  std::set<BadPair> bad;
  for (const auto& [pair, at] : pairs_) {
    if (now.steady - at <= kRemembered) bad.insert(pair);
  }
  return bad;
}

size_t Suspicions::AccusersOf(const std::string& worker, Now now) const {
  const auto accusers = accusers_.find(worker);
  if (accusers == accusers_.end()) return 0;
  return static_cast<size_t>(
      std::count_if(accusers->second.begin(), accusers->second.end(),
                    [now](const auto& entry) { return now.steady - entry.second <= kAgain; }));
}

void Suspicions::Forget(const std::string& worker) {
  std::erase_if(pairs_, [&](const auto& entry) {
    return entry.first.first == worker || entry.first.second == worker;
  });
  accusers_.erase(worker);
}

}  // namespace ringmaster::coordinator
