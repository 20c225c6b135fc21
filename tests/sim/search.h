// Many seeds, on a few threads: each simulation is on one of them. What the tests and the program
// share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/cluster.h"

namespace ringmaster::sim {

struct Failure {
  uint64_t seed = 0;
  Verdict verdict;
};

struct SearchOptions {
  uint64_t first = 1;
  uint64_t seeds = 100;
  std::string bug;  // empty: none
  unsigned threads = 2;
  bool stop_at_failure = false;
};

struct SearchResult {
  uint64_t seeds = 0;  // that ran
  uint64_t events = 0;
  Oracle::Counts counts;
  std::vector<Failure> failures;  // by seed
};

// `bug` empty or a name of common/planted_bug.h.
[[nodiscard]] Verdict SimulateWithBug(uint64_t seed, const std::string& bug, bool verbose);
[[nodiscard]] SearchResult Search(const SearchOptions& options);
// The seed, the newest lines of its log, and how to see it again.
void PrintFailure(const Failure& failure, const std::string& bug);
// Prints `NAME SEED` for every planted bug (or for one), or that it was not found: exit status 1.
[[nodiscard]] int FindBugs(const std::string& only, uint64_t most, unsigned threads);

}  // namespace ringmaster::sim
