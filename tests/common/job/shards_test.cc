#include "common/job/shards.h"

#include <catch2/catch.hpp>

#include <numeric>
#include <set>

namespace ringmaster::job {
namespace {

TEST_CASE("Shards: the batches of an epoch cover every sample once, the last one may be smaller") {
  CHECK(BatchOf(0, 4, 10) == Range{0, 4});
  CHECK(BatchOf(1, 4, 10) == Range{4, 8});
  CHECK(BatchOf(2, 4, 10) == Range{8, 10});
  CHECK(BatchOf(3, 4, 10) == Range{0, 4});
  CHECK(BatchOf(5, 4, 8) == Range{4, 8});
  CHECK(BatchOf(7, 100, 10) == Range{0, 10});
}

TEST_CASE("Shards: slices of a batch touch, cover it, and differ by at most one sample") {
  for (const uint64_t n : {1U, 5U, 8U, 61U, 256U}) {
    for (const uint32_t shards : {1U, 3U, 8U, 61U}) {
      uint64_t end = 0;
      for (uint32_t s = 0; s < shards; ++s) {
        const Range range = ShardOf(s, shards, n);
        CHECK(range.begin == end);
        CHECK(range.size() >= n / shards);
        CHECK(range.size() <= n / shards + 1);
        end = range.end;
      }
      CHECK(end == n);
    }
  }
  CHECK(ShardOf(4095, 4096, UINT64_MAX).end == UINT64_MAX);
}

TEST_CASE("Shards: an evaluation follows so many steps, and the last one, be it none") {
  CHECK_FALSE(EvaluatesAfter(0, 3, 7));
  CHECK_FALSE(EvaluatesAfter(2, 3, 7));
  CHECK(EvaluatesAfter(3, 3, 7));
  CHECK(EvaluatesAfter(6, 3, 7));
  CHECK(EvaluatesAfter(7, 3, 7));
  CHECK(EvaluatesAfter(0, 3, 0));
}

TEST_CASE("Permutation: every index comes exactly once, whatever the length") {
  for (const uint64_t n : {1U, 2U, 3U, 4U, 5U, 16U, 17U, 1000U, 6000U}) {
    const Permutation permutation(1, 0, n);
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t at = permutation.At(i);
      CHECK(at < n);
      seen.insert(at);
    }
    CHECK(seen.size() == n);
  }
}

TEST_CASE("Permutation: seed and epoch each give another order, the same give the same") {
  const auto order = [](uint64_t seed, uint64_t epoch) {
    const Permutation permutation(seed, epoch, 100);
    std::vector<uint64_t> indices;
    for (uint64_t i = 0; i < 100; ++i) indices.push_back(permutation.At(i));
    return indices;
  };
  CHECK(order(1, 0) == order(1, 0));
  CHECK(order(1, 0) != order(2, 0));
  CHECK(order(1, 0) != order(1, 1));
  CHECK(Permutation(1, 0, uint64_t{1} << 62).At(12345) < (uint64_t{1} << 62));
}

TEST_CASE("Permutation: neighbours are scattered") {
  constexpr uint64_t kSamples = 10'000;
  const Permutation permutation(3, 2, kSamples);
  // In a random order a sample and its successor are n / 3 apart on average.
  double distance = 0;
  uint64_t fixed = 0;
  for (uint64_t i = 0; i + 1 < kSamples; ++i) {
    const auto a = static_cast<int64_t>(permutation.At(i));
    const auto b = static_cast<int64_t>(permutation.At(i + 1));
    distance += static_cast<double>(std::abs(a - b));
    fixed += a == static_cast<int64_t>(i) ? 1 : 0;
  }
  CHECK(distance / kSamples == Approx(kSamples / 3.0).epsilon(0.03));
  CHECK(fixed < 10);
}

std::vector<uint64_t> Counts(uint32_t shards, const std::vector<uint32_t>& cores) {
  std::vector<uint64_t> counts;
  uint64_t end = 0;
  for (const Range& range : AssignShards(shards, cores)) {
    CHECK(range.begin == end);
    end = range.end;
    counts.push_back(range.size());
  }
  CHECK(end == shards);
  return counts;
}

TEST_CASE("Shards: each worker gets one, the rest go in proportion to cores") {
  CHECK(Counts(8, {4}) == std::vector<uint64_t>{8});
  CHECK(Counts(8, {2, 2}) == std::vector<uint64_t>{4, 4});
  CHECK(Counts(8, {2, 1, 1}) == std::vector<uint64_t>{4, 2, 2});
  CHECK(Counts(8, {1, 1, 1, 1}) == std::vector<uint64_t>{2, 2, 2, 2});
  CHECK(Counts(3, {8, 1, 1}) == std::vector<uint64_t>{1, 1, 1});
  CHECK(Counts(10, {4, 1}) == std::vector<uint64_t>{7, 3});
}

TEST_CASE("Shards: equal remainders go to the first in the ring") {
  CHECK(Counts(8, {1, 1, 1}) == std::vector<uint64_t>{3, 3, 2});
  CHECK(Counts(4, {1, 1, 1}) == std::vector<uint64_t>{2, 1, 1});
}

}  // namespace
}  // namespace ringmaster::job
