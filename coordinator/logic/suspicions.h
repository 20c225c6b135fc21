// Who accused whom of being silent, and which links are therefore not to be used. Owned by Run,
// loop thread only. It knows nothing of who is alive: an accusation counts only when Run says that
// both acknowledged the fence which it caused.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "coordinator/logic/event.h"
#include "coordinator/logic/ring_order.h"

namespace ringmaster::coordinator {

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
