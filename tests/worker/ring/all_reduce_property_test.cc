#include <catch2/catch.hpp>
#include <vector>

#include "tests/support/memory_link.h"
#include "tests/support/sanitized.h"
#include "tests/worker/ring/reduction_case.h"
#include "tests/worker/ring/script_comparison.h"

namespace ringmaster::ring {
namespace {

StatusOr<std::vector<std::vector<StepResult>>> RunOverMemory(const ReductionCase& job) {
  MemoryRing ring(job.members, {.piece_bytes = job.seed % 3 == 0 ? size_t{1000} : 0});
  std::vector<Link*> links;
  for (uint32_t rank = 0; rank < job.members; ++rank) {
    links.push_back(job.members == 1 ? nullptr : ring.link(rank));
  }
  return job.Run(links, {1, job.seed});
}

}  // namespace

TEST_CASE("AllReduce: totals, flags and reduced values depend on the shards alone") {
  constexpr uint64_t kCases = testing::kSanitized ? 500 : 2000;
  size_t flagged = 0;
  size_t compared = 0;
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    const ReductionCase job = ReductionCase::Make(seed);
    const auto results = RunOverMemory(job);
    if (!results.ok()) FAIL(Message(results.status()));
    const Status status = job.Check(*results);
    if (!status.ok()) FAIL(Message(status));
    for (const StepResult& result : results->front()) {
      ++(result.reduced.empty() ? flagged : compared);
    }
  }
  // Both kinds of step must really occur.
  CHECK(flagged > kCases / 10);
  CHECK(compared > kCases);
}

TEST_CASE("AllReduce: totals, flags, reduced values and units are those of Python's integers") {
  size_t flagged = 0;
  size_t plain = 0;
  for (uint64_t seed = 1; plain < 10; ++seed) {
    const ReductionCase job = ReductionCase::Make(seed, 1 + seed % 8);
    const auto results = RunOverMemory(job);
    if (!results.ok()) FAIL(Message(results.status()));
    // A flag resets the units: mostly cases in which they come from a step before.
    if (seed > 4 && results->front().front().reduced.empty()) continue;
    // Any member's: a different one in each case.
    const Status status = CompareWithScript(job, (*results)[seed % job.members]);
    if (!status.ok()) FAIL(Message(status));
    for (const StepResult& result : results->front()) ++(result.reduced.empty() ? flagged : plain);
  }
  CHECK(flagged > 0);
}

}  // namespace ringmaster::ring
