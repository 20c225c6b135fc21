#include "coordinator/logic/assignment.h"

#include <algorithm>
#include <catch2/catch.hpp>

namespace ringmaster::coordinator {
namespace {

using Lists = std::vector<std::vector<uint32_t>>;

Assignment Of(uint32_t shards, const std::vector<Seat>& seats) { return Assign(shards, seats); }

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
