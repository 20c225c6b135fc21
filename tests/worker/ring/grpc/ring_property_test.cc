#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <vector>

#include "tests/worker/ring/grpc/port_ring.h"
#include "tests/worker/ring/reduction_case.h"
#include "tests/worker/ring/script_comparison.h"

namespace ringmaster::ring {
namespace {

// Ends the links side by side, as workers do: each waits for its successor to have read all.
void CloseAll(std::vector<std::unique_ptr<Link>> links) {
  std::vector<std::jthread> threads;
  for (auto& link : links) threads.emplace_back([&link]() { link.reset(); });
}

// Runs the case in a ring of random members of `ring`, and checks all of it; what the last
// member has.
StatusOr<std::vector<StepResult>> RunCase(const ReductionCase& job, PortRing* ring) {
  const GenerationId generation{1, job.seed + 1};
  std::vector<uint32_t> order(8);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(job.seed));
  order.resize(job.members);
  RING_ASSIGN_OR_RETURN(auto links, ring->Connect(order, generation));
  std::vector<Link*> pointers;
  for (const auto& link : links) pointers.push_back(link.get());
  RING_ASSIGN_OR_RETURN(auto results, job.Run(pointers, generation));
  RING_RETURN_IF_ERROR(job.Check(results));
  CloseAll(std::move(links));
  return std::move(results.back());
}

void RunLarge(uint64_t first, uint64_t last) {
  PortRing ring(8, {}, GENERATE(Payloads::kMemory, Payloads::kTcp, Payloads::kBoth));
  for (uint64_t seed = first; seed <= last; ++seed) {
    const auto results = RunCase(ReductionCase::MakeLarge(seed), &ring);
    if (!results.ok()) FAIL(Message(results.status()));
  }
}

}  // namespace

TEST_CASE("RingPort: totals, flags and reduced values depend on the shards alone") {
  PortRing ring(8, {}, GENERATE(Payloads::kMemory, Payloads::kTcp, Payloads::kBoth));
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const ReductionCase job = ReductionCase::Make(seed, 1 + seed % 8);
    const auto results = RunCase(job, &ring);
    if (!results.ok()) FAIL(Message(results.status()));
    if (seed % 20 != 0) continue;
    const Status compared = CompareWithScript(job, *results);
    if (!compared.ok()) FAIL(Message(compared));
  }
}

TEST_CASE("RingPort: the same of chunks of several segments, cut as a worker cuts them") {
  RunLarge(0, 2);
}

TEST_CASE("RingPort: the same of more of them", "[nightly]") { RunLarge(3, 40); }

}  // namespace ringmaster::ring
