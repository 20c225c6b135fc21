// How many shards each member of a class computes, so that a step is as short as it can be, and
// without whom it would be shorter: from what each was seen to take. Pure; thread-safe (free
// functions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ringmaster::job {

// How quick a member is.
struct Pace {
  uint32_t cores = 1;  // >= 1, which compute shards side by side
  double seconds = 0;  // from the begin of a shard to its end, samples included; 0: not measured
};

// Of so many shards, one after the other on each core.
[[nodiscard]] double SecondsOf(const Pace& pace, uint32_t shards);

// At least one each, `shards` >= paces.size() >= 1. Who was not measured counts as the median of
// the others; when nobody was, shards follow cores alone (AssignShards).
[[nodiscard]] std::vector<uint32_t> Balance(uint32_t shards, std::span<const Pace> paces);

// Of the members who have so many: until the last one is done.
[[nodiscard]] double LongestOf(std::span<const uint32_t> counts, std::span<const Pace> paces);

// Whom to leave out, and when the others are done then, by speed.
struct Without {
  std::vector<size_t> members;  // the slowest first; empty: nobody's absence helps
  double seconds = 0;
};
// Of the ways to leave out at most `most` (< paces.size()) the one with the fewest by which the
// others are done within `enough` seconds, or else in the least time there is, or in what is longer
// than that by the part `slack` of it. When nobody was measured nobody is left out.
[[nodiscard]] Without BestWithout(uint32_t shards, std::span<const Pace> paces, size_t most,
                                  double slack, double enough = 0);

}  // namespace ringmaster::job
