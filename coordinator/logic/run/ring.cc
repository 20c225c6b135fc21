#include "coordinator/logic/run/ring.h"

#include <algorithm>

#include "common/job/balance.h"
#include "common/job/class_map.h"
#include "common/job/shards.h"
#include "common/planted_bug.h"

namespace ringmaster::coordinator {
namespace {

constexpr int kMaxTries = 20'000;

// Depth first: each place gets the first name that fits behind the one before.
class Search {
 public:
  Search(const std::vector<std::string>& names, const std::set<BadPair>& bad)
      : names_(names), bad_(bad), used_(names.size(), false) {}

  bool Run() {
    if (order_.size() == names_.size()) {
      return order_.size() < 2 || Fits(order_.back(), order_.front());
    }
    for (size_t i = 0; i < names_.size() && tries_ < kMaxTries; ++i) {
      if (used_[i] || (!order_.empty() && !Fits(order_.back(), i))) continue;
      ++tries_;
      used_[i] = true;
      order_.push_back(i);
      if (Run()) return true;
      order_.pop_back();
      used_[i] = false;
      if (order_.empty()) return false;  // a ring has no first place: the others would not help
    }
    return false;
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> ordered;
    for (const size_t i : order_) ordered.push_back(names_[i]);
    return ordered;
  }

 private:
  bool Fits(size_t a, size_t b) const { return !bad_.contains(MakeBadPair(names_[a], names_[b])); }

  const std::vector<std::string>& names_;
  const std::set<BadPair>& bad_;
  std::vector<bool> used_;
  std::vector<size_t> order_;
  int tries_ = 0;
};

}  // namespace

BadPair MakeBadPair(const std::string& a, const std::string& b) {
  return a < b ? BadPair{a, b} : BadPair{b, a};
}

std::optional<std::vector<std::string>> OrderRing(const std::vector<std::string>& names,
                                                  const std::set<BadPair>& bad) {
  Search search(names, bad);
  if (!search.Run()) return std::nullopt;
  return search.Names();
}

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

namespace {

bool MayKeep(const std::vector<uint32_t>& folded, size_t count, job::Range range,
             const std::vector<bool>& taken) {
  return folded.size() <= count && std::all_of(folded.begin(), folded.end(), [&](uint32_t shard) {
           return range.begin <= shard && shard < range.end && !taken[shard];
         });
}

// The shards of one class, for its seats.
void AssignClass(job::Range shards, std::span<const Seat> seats, const std::vector<size_t>& its,
                 Assignment* assignment) {
  std::vector<job::Pace> paces;
  for (const size_t seat : its) paces.push_back({seats[seat].cores, seats[seat].shard_seconds});
  const std::vector<uint32_t> counts = job::Balance(static_cast<uint32_t>(shards.size()), paces);
  std::vector<bool> taken(shards.end, false);
  bool kept = false;
  for (size_t i = 0; i < its.size(); ++i) {
    std::vector<uint32_t> folded = seats[its[i]].folded;
    std::sort(folded.begin(), folded.end());
    folded.erase(std::unique(folded.begin(), folded.end()), folded.end());
    if (!MayKeep(folded, counts[i], shards, taken)) continue;
    for (const uint32_t shard : folded) taken[shard] = true;
    kept = kept || !folded.empty();
    assignment->kept += static_cast<uint32_t>(folded.size());
    assignment->shards[its[i]] = std::move(folded);
  }
  auto next = static_cast<uint32_t>(shards.begin);
  for (size_t i = 0; i < its.size(); ++i) {
    std::vector<uint32_t>& own = assignment->shards[its[i]];
    while (own.size() < counts[i]) {
      if (RING_PLANTED(kDealsNoMissingShards) && kept) break;
      while (taken[next] && !RING_PLANTED(kTwoOwners)) ++next;
      own.push_back(next++);
    }
    std::sort(own.begin(), own.end());
  }
}

}  // namespace

Assignment Assign(const v1::ClassMap& map, std::span<const Seat> seats) {
  Assignment assignment;
  assignment.shards.resize(seats.size());
  assignment.follows.resize(seats.size(), false);
  for (const v1::MappedClass& each : map.classes()) {
    std::vector<size_t> its, following;
    for (size_t i = 0; i < seats.size(); ++i) {
      if (seats[i].class_name != each.class_()) continue;
      (seats[i].follows ? following : its).push_back(i);
    }
    if (its.empty()) its.swap(following);
    for (const size_t seat : following) assignment.follows[seat] = true;
    // While a job starts it may have more workers of a class than a ring has room for.
    const job::Range shards = job::ShardsOfClass(map, each.class_());
    its.resize(std::min<size_t>(its.size(), shards.size()));
    if (!its.empty()) AssignClass(shards, seats, its, &assignment);
  }
  return assignment;
}

}  // namespace ringmaster::coordinator
