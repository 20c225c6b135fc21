// sim: runs simulations of a cluster under faults, one a seed, and finds planted bugs.
//
//   sim --seeds 2000 --first 1          so many seeds, from this one
//   sim --replay 17 --log               one seed, with its event log
//   sim --bug NAME --replay 17          likewise, with a planted bug
//   sim --find-bugs [--most 20000]      for every planted bug the first seed that finds it
#include <CLI/CLI.hpp>
#include <cstdio>

#include "tests/sim/search.h"

namespace ringmaster::sim {
namespace {

int Replay(uint64_t seed, const std::string& bug, bool log) {
  const Verdict verdict = SimulateWithBug(seed, bug, log);
  fmt::print(
      "seed {} bug={} hash={:016x} events={} ended={:.3f}s applied={} generations={} "
      "fetched={} rewound={}\n{}\n",
      seed, bug.empty() ? "none" : bug, verdict.log_hash, verdict.events,
      std::chrono::duration<double>(verdict.ended).count(), verdict.counts.applied,
      verdict.counts.generations, verdict.counts.fetched_or_restored, verdict.counts.rewound,
      verdict.violation.empty() ? "every rule held" : "VIOLATION " + verdict.violation);
  return verdict.violation.empty() ? 0 : 1;
}

}  // namespace
}  // namespace ringmaster::sim

int main(int argc, char** argv) {
  using namespace ringmaster::sim;
  uint64_t seeds = 100, first = 1, most = 20'000;
  std::optional<uint64_t> replay;
  std::string bug;
  unsigned threads = 2;
  bool log = false, find_bugs = false;
  CLI::App app("Deterministic simulation of a cluster under faults");
  app.add_option("--seeds", seeds, "how many seeds");
  app.add_option("--first", first, "the first of them");
  app.add_option("--replay", replay, "one seed");
  app.add_option("--bug", bug, "a planted bug, by name");
  app.add_option("--threads", threads, "simulations at a time");
  app.add_option("--most", most, "seeds for each bug at most");
  app.add_flag("--log", log, "print the event log");
  app.add_flag("--find-bugs", find_bugs, "find a seed for every planted bug");
  CLI11_PARSE(app, argc, argv);

  if (replay) return Replay(*replay, bug, log);
  if (find_bugs) return FindBugs(bug, most, threads);
  const SearchResult result = Search({first, seeds, bug, threads, false});
  for (const Failure& failure : result.failures) PrintFailure(failure, bug);
  fmt::print(
      "{} seeds, {} failed, {} events, {} steps applied, {} generations, {} states fetched, {} "
      "followed, of which {} became whole\n",
      result.seeds, result.failures.size(), result.events, result.counts.applied,
      result.counts.generations, result.counts.fetched_or_restored, result.counts.followed,
      result.counts.whole);
  return result.failures.empty() ? 0 : 1;
}
