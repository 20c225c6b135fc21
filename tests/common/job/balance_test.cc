// Counts of shards by speed.
#include "common/job/balance.h"

#include <bit>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>

namespace ringmaster::job {
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

TEST_CASE("Balance: without whom the others are done sooner") {
  const std::vector<Pace> paces = {{1, 0.1}, {1, 2.0}, {1, 0.1}};
  Without best = BestWithout(8, paces, 2, 0.1);
  CHECK(best.members == std::vector<size_t>{1});
  CHECK(best.seconds == Approx(0.4));
  // Two that are as slow: without one of them nothing is won.
  const std::vector<Pace> two = {{1, 2.0}, {1, 0.1}, {4, 2.0}, {1, 0.1}};
  best = BestWithout(8, two, 3, 0.1);
  CHECK(best.members == std::vector<size_t>{0, 2});
  CHECK(best.seconds == Approx(0.4));
  CHECK(BestWithout(8, two, 1, 0.1).members.empty());
  CHECK(BestWithout(8, two, 1, 0.1).seconds == Approx(2.0));
  // No more than what is won is worth.
  const std::vector<Pace> three = {{1, 2.0}, {1, 0.42}, {1, 0.1}, {1, 0.1}};
  CHECK(BestWithout(8, three, 3, 0.1).members == std::vector<size_t>{0});
  CHECK(BestWithout(8, three, 3, 0.01).members == std::vector<size_t>{0, 1});
  CHECK(BestWithout(8, three, 3, 0.01, 0.5).members == std::vector<size_t>{0});
  // Equally quick, or not measured: nobody.
  CHECK(BestWithout(8, std::vector<Pace>{{1, 0.1}, {1, 0.1}}, 1, 0.1).members.empty());
  CHECK(BestWithout(8, std::vector<Pace>{{1}, {4}}, 1, 0.1).members.empty());
  CHECK(BestWithout(8, std::vector<Pace>{{1, 0.1}}, 0, 0.1).members.empty());
}

TEST_CASE("Balance: no other members' absence helps more") {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    std::vector<Pace> paces(2 + random() % 4);
    for (Pace& pace : paces) {
      pace = {1 + static_cast<uint32_t>(random() % 3),
              0.01 * (1 + random() % 5) * (random() % 3 == 0 ? 20 : 1)};
    }
    const auto shards = static_cast<uint32_t>(paces.size() + random() % 10);
    const size_t most = random() % paces.size();
    double shortest = 1e9;
    size_t fewest = 0;
    for (unsigned out = 0; out < 1U << paces.size(); ++out) {
      const auto left = static_cast<size_t>(std::popcount(out));
      if (left > most) continue;
      std::vector<Pace> others;
      for (size_t i = 0; i < paces.size(); ++i) {
        if ((out >> i & 1U) == 0) others.push_back(paces[i]);
      }
      const double seconds = LongestOf(Balance(shards, others), others);
      if (seconds < shortest * (1 - 1e-9)) fewest = left;
      if (seconds < shortest * (1 + 1e-9)) fewest = std::min(fewest, left);
      shortest = std::min(shortest, seconds);
    }
    const Without best = BestWithout(shards, paces, most, 0);
    CHECK(best.seconds == Approx(shortest));
    CHECK(best.members.size() == fewest);
  }
}

}  // namespace ringmaster::job
