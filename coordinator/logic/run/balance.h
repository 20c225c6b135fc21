// How many shards each member of a class computes, so that a step is as short as it can be: from
// what each was seen to take. Pure; thread-safe (free functions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ringmaster::coordinator {

// How quick a member is.
struct Pace {
  uint32_t cores = 1;  // >= 1, which compute shards side by side
  double seconds = 0;  // from the begin of a shard to its end, samples included; 0: not measured
};

// Of so many shards, one after the other on each core.
[[nodiscard]] double SecondsOf(const Pace& pace, uint32_t shards);

// At least one each, `shards` >= paces.size() >= 1. Who was not measured counts as the median of
// the others; when nobody was, shards follow cores alone (job::AssignShards).
[[nodiscard]] std::vector<uint32_t> Balance(uint32_t shards, std::span<const Pace> paces);

// Of the members who have so many: until the last one is done.
[[nodiscard]] double LongestOf(std::span<const uint32_t> counts, std::span<const Pace> paces);

// The member without whom the others are done soonest, and when. All were measured, and there are
// at least two.
struct Without {
  size_t member = 0;
  double seconds = 0;
};
[[nodiscard]] Without BestWithoutOne(uint32_t shards, std::span<const Pace> paces);

}  // namespace ringmaster::coordinator
