// The ring of a generation: which of its links are broken, the order of its members in which none
// of them is used, and which member computes which shards. Functions are pure and thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/logic/event.h"
#include "ringmaster/v1/job.pb.h"

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

// Which member computes which shards.

// A place in the ring, before it has shards.
struct Seat {
  uint32_t cores = 1;            // >= 1
  std::vector<uint32_t> folded;  // shards of the first step that it has finished
  std::string class_name;        // of the map
  double shard_seconds = 0;      // that it was seen to take for one; 0: not known
  bool follows = false;          // lacks the state, and need not have it: without shards
};

struct Assignment {
  std::vector<std::vector<uint32_t>> shards;  // of each seat, ascending
  std::vector<bool> follows;                  // of each seat, in the end
  uint32_t kept = 0;                          // finished before, and not computed again
};

// Each seat gets shards of its class, and of those as many as make the step shortest (Balance),
// which follows from cores alone while nobody was measured. A seat whose folded shards are no more
// than that, of its class, and nobody's yet, keeps them all; any other seat keeps none, as a worker
// does. What is missing is dealt out in ring order, ascending: without folded shards everybody gets
// a contiguous range. A seat of another class gets none, nor do the last ones of a class that has
// more seats than shards, nor those that follow where another one of their class does not; where
// all of a class would, none does.
[[nodiscard]] Assignment Assign(const v1::ClassMap& map, std::span<const Seat> seats);

}  // namespace ringmaster::coordinator
