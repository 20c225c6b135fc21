// Counts of shards by speed.
#include "coordinator/logic/run/balance.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <random>

namespace ringmaster::coordinator {
namespace {

using Counts = std::vector<uint32_t>;

Counts Balanced(uint32_t shards, std::vector<Pace> paces) { return Balance(shards, paces); }

// The shortest of all ways to deal `shards`, at least one each.
double Shortest(uint32_t shards, std::span<const Pace> paces) {
  if (paces.size() == 1) return SecondsOf(paces[0], shards);
  double shortest = 1e9;
  for (uint32_t own = 1; own + paces.size() - 1 <= shards; ++own) {
    shortest = std::min(
        shortest, std::max(SecondsOf(paces[0], own), Shortest(shards - own, paces.subspan(1))));
  }
  return shortest;
}

}  // namespace

TEST_CASE("Balance: by cores while nobody was measured, by speed then") {
  CHECK(Balanced(8, {{4}, {4}}) == Counts{4, 4});
  CHECK(Balanced(9, {{2}, {1}}) == Counts{6, 3});
  CHECK(Balanced(28, {{1, 0.1}, {1, 0.2}, {1, 0.4}}) == Counts{16, 8, 4});
  // Four cores take as long for one shard as for four.
  CHECK(Balanced(8, {{4, 0.1}, {1, 0.1}}) == Counts{7, 1});
  CHECK(Balanced(6, {{4, 0.1}, {4, 0.1}}) == Counts{3, 3});
  // Who is new counts as the middle one.
  CHECK(Balanced(8, {{1, 0.1}, {1}}) == Counts{4, 4});
  CHECK(Balanced(12, {{1, 0.1}, {1, 0.1}, {1, 0.4}, {1}}) == Counts{4, 4, 1, 3});
  // However slow, one shard.
  CHECK(Balanced(8, {{1, 0.1}, {1, 100}}) == Counts{7, 1});
}

TEST_CASE("Balance: no other way is done sooner") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<Pace> paces(2 + random() % 3);
    for (Pace& pace : paces) {
      pace = {1 + static_cast<uint32_t>(random() % 4), 0.01 * (1 + random() % 50)};
    }
    const auto shards = static_cast<uint32_t>(paces.size() + random() % 12);
    const Counts counts = Balance(shards, paces);
    CHECK(std::accumulate(counts.begin(), counts.end(), 0U) == shards);
    CHECK(*std::min_element(counts.begin(), counts.end()) >= 1);
    CHECK(LongestOf(counts, paces) == Approx(Shortest(shards, paces)));
  }
}

TEST_CASE("Balance: without whom the others are done soonest") {
  const std::vector<Pace> paces = {{1, 0.1}, {1, 2.0}, {1, 0.1}};
  const Without best = BestWithoutOne(8, paces);
  CHECK(best.member == 1);
  CHECK(best.seconds == Approx(0.4));
}

}  // namespace ringmaster::coordinator
