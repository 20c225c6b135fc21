#include "worker/train/step_work.h"

#include <catch2/catch.hpp>

namespace ringmaster::worker {
namespace {

std::vector<BatchId> Work(const std::vector<uint32_t>& shards, uint64_t step = 7) {
  std::vector<BatchId> work;
  for (const uint32_t shard : shards) work.push_back(BatchId::Training(step, shard));
  return work;
}

// The cores come to the end of the first `done` missing shards.
void Compute(StepWork* work, size_t done, ShardEnd rest = ShardEnd::kOpen) {
  const std::span<const BatchId> missing = work->missing();
  const std::span<ShardResult> open = work->open();
  for (size_t i = 0; i < open.size(); ++i) {
    open[i].end = i < done ? ShardEnd::kDone : rest;
    open[i].shard = missing[i].shard;
    open[i].samples = 100 + missing[i].shard;
  }
  work->Settle();
}

TEST_CASE("StepWork: what was folded is kept when all of it is needed, with its results") {
  StepWork work;
  work.Begin(Work({0, 1, 2, 3}));
  REQUIRE_FALSE(work.keeps());
  REQUIRE(work.missing().size() == 4);
  Compute(&work, 2);
  REQUIRE_FALSE(work.complete());
  REQUIRE(work.folded() == std::vector<uint32_t>{0, 1});
  work.Begin(Work({0, 1, 3, 5}));
  REQUIRE(work.keeps());
  REQUIRE(std::vector(work.missing().begin(), work.missing().end()) == Work({3, 5}));
  Compute(&work, 2);
  REQUIRE(work.complete());
  REQUIRE(work.folded() == std::vector<uint32_t>{0, 1, 3, 5});
  for (const ShardResult& result : work.results()) REQUIRE(result.samples == 100 + result.shard);
  REQUIRE(work.computed() == 4);
  REQUIRE(work.dropped() == 0);
}

TEST_CASE("StepWork: one folded shard that is another's now drops all") {
  StepWork work;
  work.Begin(Work({0, 1, 2}));
  Compute(&work, 2);
  work.Begin(Work({1, 2, 3}));
  REQUIRE_FALSE(work.keeps());
  REQUIRE(work.folded().empty());
  REQUIRE(work.missing().size() == 3);
  REQUIRE(work.computed() == 2);
  REQUIRE(work.dropped() == 2);
}

TEST_CASE("StepWork: a shard that failed on its way drops all, one that was not begun does not") {
  StepWork work;
  work.Begin(Work({0, 1, 2}));
  Compute(&work, 2, ShardEnd::kTorn);
  REQUIRE_FALSE(work.complete());
  REQUIRE(work.folded().empty());
  REQUIRE(work.dropped() == 2);
  work.Begin(Work({0, 1, 2}));
  REQUIRE_FALSE(work.keeps());
  REQUIRE(work.missing().size() == 3);
}

TEST_CASE("StepWork: a complete step is kept whole, and ends with the update") {
  StepWork work;
  work.Begin(Work({4, 5}));
  Compute(&work, 2);
  REQUIRE(work.complete());
  work.Begin(Work({4, 5}));
  REQUIRE(work.complete());
  REQUIRE(work.missing().empty());
  work.End();
  REQUIRE_FALSE(work.complete());
  REQUIRE(work.folded().empty());
  REQUIRE(work.dropped() == 0);
  work.Begin(Work({4, 5}, 8));
  REQUIRE_FALSE(work.keeps());
  REQUIRE(work.missing().size() == 2);
}

TEST_CASE("StepWork: a worker without shards has nothing to do") {
  StepWork work;
  work.Begin({});
  REQUIRE(work.complete());
  REQUIRE_FALSE(work.keeps());
  work.Settle();
  REQUIRE(work.complete());
}

}  // namespace
}  // namespace ringmaster::worker
