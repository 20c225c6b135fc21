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

}  // namespace

TEST_CASE("RingPort: totals, flags and reduced values depend on the shards alone") {
  PortRing ring(8);
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const ReductionCase job = ReductionCase::Make(seed, 1 + seed % 8);
    std::vector<uint32_t> order(8);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
    order.resize(job.members);
    auto links = ring.Connect(order, {1, seed});
    if (!links.ok()) FAIL(Message(links.status()));
    std::vector<Link*> pointers;
    for (const auto& link : *links) pointers.push_back(link.get());
    const auto results = job.Run(pointers, {1, seed});
    if (!results.ok()) FAIL(Message(results.status()));
    const Status status = job.Check(*results);
    if (!status.ok()) FAIL(Message(status));
    if (seed % 20 == 0) {
      const Status compared = CompareWithScript(job, results->back());
      if (!compared.ok()) FAIL(Message(compared));
    }
    CloseAll(*std::move(links));
  }
}

}  // namespace ringmaster::ring
