#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <vector>

#include "tests/support/memory_link.h"
#include "tests/support/sanitized.h"
#include "tests/worker/ring/reduction_case.h"
#include "tests/worker/ring/script_comparison.h"

namespace ringmaster::ring {
namespace {

// `last_segment`: the largest number that a frame's segment had.
StatusOr<std::vector<std::vector<StepResult>>> RunOverMemory(const ReductionCase& job,
                                                             uint32_t* last_segment = nullptr) {
  MemoryRing ring(job.members, {.piece_bytes = job.seed % 3 == 0 ? size_t{1000} : 0});
  std::atomic<uint32_t> last = 0;
  std::vector<Link*> links;
  for (uint32_t rank = 0; rank < job.members; ++rank) {
    links.push_back(job.members == 1 ? nullptr : ring.link(rank));
  }
  // Of one edge: every chunk passes it.
  ring.Tamper(0, [&](Frame& frame) { last = std::max(last.load(), frame.header.segment); });
  auto results = job.Run(links, {1, job.seed});
  if (last_segment != nullptr) *last_segment = last;
  return results;
}

bool SeveralTables(const ReductionCase& job) {
  return std::ranges::any_of(job.kernels, [&](auto* table) { return table != job.kernels[0]; });
}

// Whether the totals of a block went just beyond what sums of int32 hold.
bool Spilled(const ReductionCase& job, const StepResult& result) {
  if (job.form != SumsForm::kBlocks) return false;
  for (size_t at = 0; at < result.totals.size(); at += exact::kBlockElements) {
    int64_t largest = 0;
    for (size_t i = at; i < at + exact::kBlockElements; ++i) {
      largest = std::max(largest, std::abs(result.totals[i]));
    }
    if (largest >= (int64_t{1} << 30) && largest < (int64_t{1} << 32)) return true;
  }
  return false;
}

// How many steps, or cases, of a run were of which kind.
struct Kinds {
  size_t flagged = 0, compared = 0, spilled = 0, several_tables = 0;

  void Count(const ReductionCase& job, const std::vector<StepResult>& results) {
    if (SeveralTables(job)) ++several_tables;
    for (const StepResult& result : results) {
      ++(result.reduced.empty() ? flagged : compared);
      if (Spilled(job, result)) ++spilled;
    }
  }
};

}  // namespace

TEST_CASE("AllReduce: totals, flags and reduced values depend on the shards alone") {
  constexpr uint64_t kCases = testing::kSanitized ? 500 : 2000;
  Kinds kinds;
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    const ReductionCase job = ReductionCase::Make(seed);
    const auto results = RunOverMemory(job);
    if (!results.ok()) FAIL(Message(results.status()));
    const Status status = job.Check(*results);
    if (!status.ok()) FAIL(Message(status));
    kinds.Count(job, results->front());
  }
  // Each kind must really occur.
  CHECK(kinds.flagged > kCases / 10);
  CHECK(kinds.compared > kCases);
  CHECK(kinds.spilled > kCases / 20);
  CHECK(kinds.several_tables > kCases / 2);
}

TEST_CASE("AllReduce: the same of chunks of several segments, cut as a worker cuts them") {
  constexpr uint64_t kCases = testing::kSanitized ? 3 : 30;
  constexpr uint32_t kLastSegments[] = {1, 3, 4};  // by the rule that cuts the largest tensor
  Kinds kinds;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const ReductionCase job = ReductionCase::MakeLarge(seed);
    uint32_t last_segment = 0;
    const auto results = RunOverMemory(job, &last_segment);
    if (!results.ok()) FAIL(Message(results.status()));
    const Status status = job.Check(*results);
    if (!status.ok()) FAIL(Message(status));
    CHECK(last_segment >= kLastSegments[seed % 3]);
    kinds.Count(job, results->front());
  }
  CHECK(kinds.compared > kCases);
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
