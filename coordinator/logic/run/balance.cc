#include "coordinator/logic/run/balance.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>

#include "common/job/shards.h"

namespace ringmaster::coordinator {
namespace {

std::vector<uint32_t> ByCores(uint32_t shards, std::span<const Pace> paces) {
  std::vector<uint32_t> cores, counts;
  for (const Pace& pace : paces) cores.push_back(pace.cores);
  for (const job::Range& range : job::AssignShards(shards, cores)) {
    counts.push_back(static_cast<uint32_t>(range.size()));
  }
  return counts;
}

// Everybody measured, or nobody.
std::vector<Pace> Completed(std::span<const Pace> paces) {
  std::vector<double> known;
  for (const Pace& pace : paces) {
    if (pace.seconds > 0) known.push_back(pace.seconds);
  }
  std::vector<Pace> complete(paces.begin(), paces.end());
  if (known.empty()) return complete;
  std::ranges::nth_element(known, known.begin() + static_cast<std::ptrdiff_t>(known.size() / 2));
  for (Pace& pace : complete) {
    if (pace.seconds <= 0) pace.seconds = known[known.size() / 2];
  }
  return complete;
}

}  // namespace

double SecondsOf(const Pace& pace, uint32_t shards) {
  const uint32_t rounds = (shards + pace.cores - 1) / pace.cores;
  return rounds * pace.seconds;
}

// One shard after the other goes to whoever has it done first; among equals to whoever has less to
// do on each core. With times that only grow by what is added no other way ends sooner.
std::vector<uint32_t> Balance(uint32_t shards, std::span<const Pace> measured) {
  const std::vector<Pace> paces = Completed(measured);
  if (paces.front().seconds <= 0) return ByCores(shards, measured);
  std::vector<uint32_t> counts(paces.size(), 1);
  // With one more: done then, seconds of work on each core, place in the ring.
  using Offer = std::tuple<double, double, size_t>;
  const auto offer = [&](size_t i) {
    const uint32_t count = counts[i] + 1;
    return Offer(SecondsOf(paces[i], count), count * paces[i].seconds / paces[i].cores, i);
  };
  std::priority_queue<Offer, std::vector<Offer>, std::greater<>> offers;
  for (size_t i = 0; i < paces.size(); ++i) offers.push(offer(i));
  for (auto given = static_cast<uint32_t>(paces.size()); given < shards; ++given) {
    const size_t best = std::get<size_t>(offers.top());
    offers.pop();
    ++counts[best];
    offers.push(offer(best));
  }
  return counts;
}

double LongestOf(std::span<const uint32_t> counts, std::span<const Pace> paces) {
  double longest = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    longest = std::max(longest, SecondsOf(paces[i], counts[i]));
  }
  return longest;
}

Without BestWithoutOne(uint32_t shards, std::span<const Pace> paces) {
  // Whoever takes longest for a single shard: nobody else's absence helps more.
  const auto slowest = std::ranges::max_element(
      paces, {}, [](const Pace& pace) { return std::pair(pace.seconds, -double(pace.cores)); });
  Without best{static_cast<size_t>(slowest - paces.begin()), 0};
  std::vector<Pace> others(paces.begin(), paces.end());
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(best.member));
  best.seconds = LongestOf(Balance(shards, others), others);
  return best;
}

}  // namespace ringmaster::coordinator
