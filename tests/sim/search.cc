#include "tests/sim/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "common/planted_bug.h"

namespace ringmaster::sim {
namespace {

PlantedBug BugNamed(const std::string& name) {
  if (name.empty()) return PlantedBug::kNone;
  for (const auto& [bug, known] : kPlantedBugs) {
    if (known == name) return bug;
  }
  fmt::print(stderr, "there is no planted bug {}\n", name);
  std::exit(2);
}

void Add(const Oracle::Counts& counts, Oracle::Counts* sum) {
  sum->applied += counts.applied;
  sum->fetched_or_restored += counts.fetched_or_restored;
  sum->generations += counts.generations;
  sum->rewound += counts.rewound;
  sum->followed += counts.followed;
  sum->whole += counts.whole;
}

}  // namespace

Verdict SimulateWithBug(uint64_t seed, const std::string& bug, bool verbose) {
  planted_bug = BugNamed(bug);
  Verdict verdict = Simulate(MakePlan(seed), verbose);
  planted_bug = PlantedBug::kNone;
  return verdict;
}

SearchResult Search(const SearchOptions& options) {
  SearchResult result;
  std::mutex mu;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> enough{false};
  const auto work = [&] {
    while (!enough) {
      const uint64_t i = next++;
      if (i >= options.seeds) return;
      const uint64_t seed = options.first + i;
      Verdict verdict = SimulateWithBug(seed, options.bug, false);
      const std::lock_guard lock(mu);
      ++result.seeds;
      result.events += verdict.events;
      Add(verdict.counts, &result.counts);
      if (verdict.violation.empty()) continue;
      result.failures.push_back({seed, std::move(verdict)});
      if (options.stop_at_failure) enough = true;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < std::max(1u, options.threads); ++i) threads.emplace_back(work);
  }
  std::sort(result.failures.begin(), result.failures.end(),
            [](const Failure& a, const Failure& b) { return a.seed < b.seed; });
  return result;
}

void PrintFailure(const Failure& failure, const std::string& bug) {
  constexpr size_t kLines = 12;
  const std::vector<std::string>& lines = failure.verdict.newest_lines;
  fmt::print("seed {}: {}\n", failure.seed, failure.verdict.violation);
  for (size_t i = lines.size() - std::min(kLines, lines.size()); i < lines.size(); ++i) {
    fmt::print("    {}\n", lines[i]);
  }
  fmt::print("    again: sim --replay {} --log{}\n", failure.seed,
             bug.empty() ? "" : " --bug " + bug);
}

int FindBugs(const std::string& only, uint64_t most, unsigned threads) {
  int status = 0;
  for (const auto& [bug, name] : kPlantedBugs) {
    if (!only.empty() && name != only) continue;
    const SearchResult result = Search({1, most, std::string(name), threads, true});
    if (result.failures.empty()) {
      fmt::print("{} not found in {} seeds\n", name, result.seeds);
      status = 1;
    } else {
      fmt::print("{} {}  # {}\n", name, result.failures[0].seed,
                 result.failures[0].verdict.violation);
    }
    std::fflush(stdout);
  }
  return status;
}

}  // namespace ringmaster::sim
