// The toy's mathematics: S(0) is a hash of the job, S(k+1) of S(k) and of one contribution a shard.
// A missing, doubled or stale contribution, and a step that is applied twice, changes every state
// that follows. Pure; thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ringmaster/v1/job.pb.h"

namespace ringmaster::sim {

using StateHash = uint64_t;

struct Contribution {
  uint32_t shard = 0;
  uint64_t value = 0;
  auto operator<=>(const Contribution&) const = default;
};

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014) over a running value.
inline uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2));
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline StateHash FirstState(const v1::ResultSpec& job) {
  return Mix(Mix(Mix(1, job.seed()), job.shards()), job.total_steps());
}

inline uint64_t ContributionOf(StateHash state, uint32_t shard) { return Mix(state, shard + 2); }

inline StateHash NextState(StateHash state, std::vector<Contribution> contributions) {
  std::sort(contributions.begin(), contributions.end());
  uint64_t sum = Mix(state, contributions.size());
  for (const Contribution& c : contributions) sum = Mix(Mix(sum, c.shard), c.value);
  return sum;
}

// S(0) ... S(total_steps) of the undisturbed run.
inline std::vector<StateHash> UndisturbedStates(const v1::ResultSpec& job) {
  std::vector<StateHash> states{FirstState(job)};
  while (states.size() <= job.total_steps()) {
    std::vector<Contribution> all;
    for (uint32_t s = 0; s < job.shards(); ++s)
      all.push_back({s, ContributionOf(states.back(), s)});
    states.push_back(NextState(states.back(), std::move(all)));
  }
  return states;
}

// digest(k), as messages carry it.
inline std::string DigestOf(StateHash state) {
  return {reinterpret_cast<const char*>(&state), sizeof(state)};
}

}  // namespace ringmaster::sim
