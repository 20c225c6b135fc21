#include <algorithm>
#include <catch2/catch.hpp>

#include "coordinator/logic/run/ring.h"
#include "tests/coordinator/logic/fixtures.h"

namespace ringmaster::coordinator {
namespace {

using Names = std::vector<std::string>;

bool Avoids(const Names& ring, const std::set<BadPair>& bad) {
  for (size_t i = 0; i < ring.size(); ++i) {
    if (bad.contains(MakeBadPair(ring[i], ring[(i + 1) % ring.size()]))) return false;
  }
  return true;
}

TEST_CASE("OrderRing: without bad links the order stays") {
  CHECK(OrderRing({"c", "a", "b"}, {}) == Names{"c", "a", "b"});
  CHECK(OrderRing({"a"}, {{"a", "b"}}) == Names{"a"});
}

TEST_CASE("OrderRing: in a ring of four two workers can be kept apart") {
  const std::set<BadPair> bad{MakeBadPair("b", "a")};
  CHECK(OrderRing({"a", "b", "c", "d"}, bad) == Names{"a", "c", "b", "d"});
}

TEST_CASE("OrderRing: the last and the first are neighbours") {
  const std::set<BadPair> bad{MakeBadPair("a", "d")};
  const auto ring = OrderRing({"a", "b", "c", "d"}, bad);
  REQUIRE(ring);
  CHECK(Avoids(*ring, bad));
}

TEST_CASE("OrderRing: in a ring of two or three it cannot be") {
  CHECK_FALSE(OrderRing({"a", "b"}, {MakeBadPair("a", "b")}));
  CHECK_FALSE(OrderRing({"a", "b", "c"}, {MakeBadPair("a", "b")}));
  // Two bad links of one worker in a ring of four.
  CHECK_FALSE(OrderRing({"a", "b", "c", "d"}, {MakeBadPair("a", "b"), MakeBadPair("a", "c")}));
}

// Every set of bad links among five workers, against all orders.
TEST_CASE("OrderRing: it finds an order whenever there is one") {
  const Names names{"a", "b", "c", "d", "e"};
  std::vector<BadPair> pairs;
  for (size_t i = 0; i < names.size(); ++i) {
    for (size_t j = i + 1; j < names.size(); ++j) pairs.push_back({names[i], names[j]});
  }
  for (uint32_t bits = 0; bits < 1U << pairs.size(); ++bits) {
    std::set<BadPair> bad;
    for (size_t i = 0; i < pairs.size(); ++i) {
      if ((bits >> i & 1U) != 0) bad.insert(pairs[i]);
    }
    bool possible = false;
    for (Names order = names; !possible;) {
      possible = Avoids(order, bad);
      if (!std::next_permutation(order.begin(), order.end())) break;
    }
    const auto ring = OrderRing(names, bad);
    if (ring.has_value() == possible && (!ring || Avoids(*ring, bad))) continue;
    FAIL("bad links " << bits);
  }
}

TEST_CASE("OrderRing: a large ring with a few bad links is ordered") {
  Names names;
  std::set<BadPair> bad;
  for (int i = 0; i < 200; ++i) names.push_back(std::to_string(1000 + i));
  for (int i = 0; i < 199; i += 3) bad.insert(MakeBadPair(names[i], names[i + 1]));
  bad.insert(MakeBadPair(names.front(), names.back()));
  const auto ring = OrderRing(names, bad);
  REQUIRE(ring);
  CHECK(Avoids(*ring, bad));
}

TEST_CASE("Suspicions: a second time within ten seconds is again, whoever accuses") {
  Suspicions suspicions;
  CHECK_FALSE(suspicions.Add({"a", "b"}, AtMs(0)));
  CHECK(suspicions.Add({"b", "a"}, AtMs(10'000)));
  CHECK_FALSE(suspicions.Add({"a", "b"}, AtMs(20'001)));
  CHECK_FALSE(suspicions.Add({"a", "c"}, AtMs(20'001)));
}

TEST_CASE("Suspicions: accusers are counted once each, for ten seconds") {
  Suspicions suspicions;
  (void)suspicions.Add({"a", "b"}, AtMs(0));
  (void)suspicions.Add({"c", "b"}, AtMs(1'000));
  (void)suspicions.Add({"c", "b"}, AtMs(2'000));
  CHECK(suspicions.AccusersOf("b", AtMs(2'000)) == 2);
  CHECK(suspicions.AccusersOf("b", AtMs(10'001)) == 1);
  CHECK(suspicions.AccusersOf("a", AtMs(2'000)) == 0);
}

TEST_CASE("Suspicions: a bad link is remembered for a while, or until one of its ends is out") {
  Suspicions suspicions;
  (void)suspicions.Add({"b", "a"}, AtMs(0));
  (void)suspicions.Add({"c", "d"}, AtMs(0));
  CHECK(suspicions.BadPairs(AtMs(300'000)) == std::set<BadPair>{{"a", "b"}, {"c", "d"}});
  CHECK(suspicions.BadPairs(AtMs(300'001)).empty());
  suspicions.Forget("b");
  CHECK(suspicions.BadPairs(AtMs(1)) == std::set<BadPair>{{"c", "d"}});
}

using Lists = std::vector<std::vector<uint32_t>>;

Assignment Of(uint32_t shards, const std::vector<Seat>& seats) {
  v1::ClassMap map;
  map.add_classes()->set_shards(shards);
  return Assign(map, seats);
}

TEST_CASE("Assign: each seat gets shards of its class") {
  v1::ClassMap map;
  for (const auto& [name, shards] : {std::pair{"a", 2U}, {"b", 5U}, {"c", 1U}}) {
    map.add_classes()->set_class_(name);
    map.mutable_classes()->rbegin()->set_shards(shards);
  }
  const std::vector<Seat> seats = {{1, {}, "b"}, {4, {}, "a"}, {1, {6}, "b"}, {9, {}, "c"}};
  const Assignment assignment = Assign(map, seats);
  CHECK(assignment.shards == Lists{{2, 3, 4}, {0, 1}, {5, 6}, {7}});
  CHECK(assignment.kept == 1);
  // What another class computes now is not kept.
  const std::vector<Seat> moved = {{1, {}, "b"}, {4, {1, 2}, "a"}, {1, {}, "b"}, {9, {}, "c"}};
  CHECK(Assign(map, moved).shards == Lists{{2, 3, 4}, {0, 1}, {5, 6}, {7}});
  CHECK(Assign(map, moved).kept == 0);
}

TEST_CASE("Assign: the last ones of a class that has more seats than shards get none") {
  CHECK(Of(2, {{1, {}}, {4, {}}, {1, {}}}).shards == Lists{{0}, {1}, {}});
}

TEST_CASE("Assign: who follows gets none where another one of its class does not") {
  const auto seat = [](const char* name, bool follows) { return Seat{4, {}, name, 0, follows}; };
  v1::ClassMap map;
  for (const auto& [name, shards] : {std::pair{"a", 3U}, {"b", 3U}}) {
    map.add_classes()->set_class_(name);
    map.mutable_classes()->rbegin()->set_shards(shards);
  }
  const std::vector<Seat> seats = {seat("a", true), seat("a", false), seat("b", true),
                                   seat("b", true)};
  const Assignment assignment = Assign(map, seats);
  CHECK(assignment.shards == Lists{{}, {0, 1, 2}, {3, 4}, {5}});
  CHECK(assignment.follows == std::vector<bool>{true, false, false, false});
  // A place in the ring that follows is none of those that a class has room for.
  const std::vector<Seat> many = {seat("a", true), seat("a", false), seat("a", false),
                                  seat("a", false), seat("b", false)};
  CHECK(Assign(map, many).shards == Lists{{}, {0}, {1}, {2}, {3, 4, 5}});
}

TEST_CASE("Assign: without finished shards everybody gets a contiguous range by cores") {
  const Assignment assignment = Of(8, {{2, {}}, {1, {}}, {1, {}}});
  CHECK(assignment.shards == Lists{{0, 1, 2, 3}, {4, 5}, {6, 7}});
  CHECK(assignment.kept == 0);
}

TEST_CASE("Assign: finished shards stay, what is missing is dealt out in ring order") {
  const Assignment assignment = Of(6, {{1, {4}}, {1, {0, 1, 5}}});
  CHECK(assignment.shards == Lists{{2, 3, 4}, {0, 1, 5}});
  CHECK(assignment.kept == 4);
}

TEST_CASE("Assign: more finished shards than its number are dropped as a whole") {
  const Assignment assignment = Of(4, {{1, {0, 1, 2}}, {1, {3}}});
  CHECK(assignment.shards == Lists{{0, 1}, {2, 3}});
  CHECK(assignment.kept == 1);
}

TEST_CASE("Assign: a shard that two have finished is the first one's, the other keeps nothing") {
  const Assignment assignment = Of(4, {{1, {1}}, {1, {1, 2}}});
  CHECK(assignment.shards == Lists{{0, 1}, {2, 3}});
  CHECK(assignment.kept == 1);
}

TEST_CASE("Assign: nonsense is not kept") {
  const Assignment assignment = Of(3, {{1, {7}}, {2, {2, 2}}});
  CHECK(assignment.shards == Lists{{0}, {1, 2}});
  CHECK(assignment.kept == 1);
}

// Every subset of finished shards of three seats.
TEST_CASE("Assign: every shard has one owner, whatever was finished") {
  constexpr uint32_t kShards = 5;
  for (uint32_t bits = 0; bits < 1U << (3 * kShards); ++bits) {
    std::vector<Seat> seats{{1, {}}, {2, {}}, {1, {}}};
    for (uint32_t i = 0; i < 3 * kShards; ++i) {
      if ((bits >> i & 1U) != 0) seats[i / kShards].folded.push_back(i % kShards);
    }
    const Assignment assignment = Of(kShards, seats);
    std::vector<uint32_t> all;
    uint32_t kept = 0;
    bool whole = true;
    for (size_t i = 0; i < seats.size(); ++i) {
      const std::vector<uint32_t>& own = assignment.shards[i];
      all.insert(all.end(), own.begin(), own.end());
      whole = whole && std::is_sorted(own.begin(), own.end()) && !own.empty();
      // As a worker decides it.
      const bool keeps =
          std::includes(own.begin(), own.end(), seats[i].folded.begin(), seats[i].folded.end());
      if (keeps) kept += static_cast<uint32_t>(seats[i].folded.size());
    }
    std::sort(all.begin(), all.end());
    if (all == std::vector<uint32_t>{0, 1, 2, 3, 4} && whole && kept >= assignment.kept) continue;
    FAIL("finished " << bits);
  }
}

}  // namespace

}  // namespace ringmaster::coordinator
