// The toy's mathematics: S(0) is a hash of the job, S(k+1) of S(k) and of one contribution a shard.
// A missing, doubled or stale contribution, and a step that is applied twice, changes every state
// that follows. Pure; thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/job/class_map.h"
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

// What workers of a class compute with; classes are numbered.
inline std::string InstructionsOf(uint32_t numerics_class) {
  constexpr const char* kNames[] = {"avx2", "avx512_core", "avx512_core_bf16"};
  return kNames[numerics_class % 3];
}

// Workers of one class have the same bits, others have others.
inline uint64_t ContributionOf(StateHash state, uint32_t shard, const std::string& instructions) {
  return Mix(Mix(state, shard + 2), instructions.size());
}

inline StateHash NextState(StateHash state, std::vector<Contribution> contributions) {
  std::sort(contributions.begin(), contributions.end());
  uint64_t sum = Mix(state, contributions.size());
  for (const Contribution& c : contributions) sum = Mix(Mix(sum, c.shard), c.value);
  return sum;
}

using job::ClassMaps;

// S(0) ... S(total_steps) of the undisturbed run by these maps: each step by the last one that
// begins before it, or with it.
inline std::vector<StateHash> UndisturbedStates(const v1::ResultSpec& job, const ClassMaps& maps) {
  std::vector<StateHash> states{FirstState(job)};
  for (int next = 0; states.size() <= job.total_steps();) {
    while (next + 1 < maps.size() && maps[next + 1].step() < states.size()) ++next;
    std::vector<Contribution> all;
    for (const v1::MappedClass& each : maps[next].classes()) {
      for (uint32_t i = 0; i < each.shards(); ++i) {
        const auto shard = static_cast<uint32_t>(all.size());
        const std::string& instructions = each.numerics().instruction_set();
        all.push_back({shard, ContributionOf(states.back(), shard, instructions)});
      }
    }
    states.push_back(NextState(states.back(), std::move(all)));
  }
  return states;
}

// digest(k), as messages carry it.
inline std::string DigestOf(StateHash state) {
  return {reinterpret_cast<const char*>(&state), sizeof(state)};
}

}  // namespace ringmaster::sim
