#include "common/job/balance.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "common/job/shards.h"

namespace ringmaster::job {
namespace {

constexpr double kRounding = 1e-9;

std::vector<uint32_t> ByCores(uint32_t shards, std::span<const Pace> paces) {
  std::vector<uint32_t> cores, counts;
  for (const Pace& pace : paces) cores.push_back(pace.cores);
  for (const Range& range : AssignShards(shards, cores)) {
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

// Whoever is left out takes longest for a single shard: each of the others has one at least, and no
// other order leaves as many who are quick enough. While the slowest one's single shard is what a
// step waits for, the absence of the slowest helps; from then on it only leaves more to the others.
Without BestWithout(uint32_t shards, std::span<const Pace> measured, size_t most, double slack,
                    double enough) {
  const std::vector<Pace> paces = Completed(measured);
  std::vector<size_t> order(paces.size());  // the slowest first
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return paces[i].seconds; });
  const auto without = [&](size_t count) {
    std::vector<Pace> others;
    for (size_t i = count; i < order.size(); ++i) others.push_back(paces[order[i]]);
    return LongestOf(Balance(shards, others), others);
  };
  const auto single = [&](size_t count) { return paces[order[count]].seconds; };
  const double now = without(0);
  Without best{{}, now};
  const auto waits = [&](size_t count, double seconds) {
    return seconds <= single(count) * (1 + kRounding);
  };
  if (most == 0 || !(single(0) > 0) || !waits(0, now)) return best;
  size_t least = 1, beyond = most + 1;  // the first count at which no single shard is waited for
  while (least < beyond) {
    const size_t middle = least + (beyond - least) / 2;
    if (waits(middle, without(middle))) {
      least = middle + 1;
    } else {
      beyond = middle;
    }
  }
  double shortest = now;
  if (beyond <= most) shortest = std::min(shortest, without(beyond));
  if (beyond > 1) shortest = std::min(shortest, without(beyond - 1));
  const double limit = std::max(enough, shortest / (1 - slack)) * (1 + kRounding);
  for (size_t count = 0; count <= std::min(beyond, most); ++count) {
    best.seconds = count == 0 ? now : count < beyond ? single(count) : without(count);
    if (best.seconds <= limit) break;
    best.members.push_back(order[count]);
  }
  return best;
}

}  // namespace ringmaster::job
