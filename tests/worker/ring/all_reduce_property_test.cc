#include <catch2/catch.hpp>
#include <vector>

#include "tests/support/memory_link.h"
#include "tests/worker/ring/reduction_case.h"

namespace ringmaster::ring {

TEST_CASE("AllReduce: totals, flags and reduced values depend on the shards alone") {
  constexpr uint64_t kCases = 2000;
  size_t flagged = 0;
  size_t compared = 0;
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    const ReductionCase job = ReductionCase::Make(seed);
    MemoryRing ring(job.members, {.piece_bytes = seed % 3 == 0 ? size_t{1000} : 0});
    std::vector<Link*> links;
    for (uint32_t rank = 0; rank < job.members; ++rank) {
      links.push_back(job.members == 1 ? nullptr : ring.link(rank));
    }
    const auto results = job.Run(links, {1, seed});
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

}  // namespace ringmaster::ring
