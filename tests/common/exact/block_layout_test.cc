#include "common/exact/block_layout.h"

#include <catch2/catch.hpp>
#include <vector>

namespace ringmaster::exact {
namespace {

BlockLayout Layout(const std::vector<BlockLayout::Tensor>& tensors) {
  StatusOr<BlockLayout> layout = BlockLayout::Create(tensors);
  REQUIRE(layout.ok());
  return *layout;
}

TEST_CASE("BlockLayout: blocks count from the start of each tensor, in arena order") {
  const BlockLayout layout = Layout({{2, 600}, {0, 1}, {1, 256}});
  REQUIRE(layout.block_count() == 5);
  REQUIRE(layout.arena_elements() == 5 * 256);
  const std::vector<std::vector<uint32_t>> expected = {
      {2, 0, 256}, {2, 1, 256}, {2, 2, 88}, {0, 0, 1}, {1, 0, 256}};
  for (size_t b = 0; b < expected.size(); ++b) {
    const Block& block = layout.blocks()[b];
    REQUIRE(std::vector<uint32_t>{block.tensor, block.index, block.count} == expected[b]);
  }
  REQUIRE(layout.tensors()[0].tensor == 2);
  REQUIRE(layout.tensor(0).offset() == 3 * 256);
  REQUIRE(layout.tensor(1).first_block == 4);
  REQUIRE(layout.tensor(2).block_count == 3);
  REQUIRE(layout.tensor(2).elements == 600);
}

TEST_CASE("BlockLayout: a model without parameters has no blocks") {
  const BlockLayout layout = Layout({});
  REQUIRE(layout.block_count() == 0);
  REQUIRE(CutBuckets(layout, 100).empty());
}

TEST_CASE("BlockLayout: refuses numbers that are not 0 to n-1 once each, and empty tensors") {
  const auto message = [](const std::vector<BlockLayout::Tensor>& tensors) {
    const StatusOr<BlockLayout> layout = BlockLayout::Create(tensors);
    REQUIRE(layout.status().code() == absl::StatusCode::kInvalidArgument);
    return Message(layout.status());
  };
  REQUIRE_THAT(message({{0, 1}, {2, 1}}), Catch::Contains("tensor number 2 of 2 tensors"));
  REQUIRE_THAT(message({{0, 1}, {0, 1}}), Catch::Contains("tensor number 0 stands twice"));
  REQUIRE_THAT(message({{0, 0}}), Catch::Contains("tensor 0 has 0 elements"));
  REQUIRE_THAT(message({{0, uint64_t{1} << 41}}), Catch::Contains("expected 1 to"));
}

TEST_CASE("CutBuckets: cuts at tensor borders once a bucket is large enough") {
  const BlockLayout layout = Layout({{0, 100}, {1, 500}, {2, 1000}, {3, 10}});
  const auto cut = [&](size_t elements) {
    std::vector<std::vector<size_t>> buckets;
    for (const Bucket& bucket : CutBuckets(layout, elements)) {
      buckets.push_back({bucket.first_block, bucket.block_count});
    }
    return buckets;
  };
  using Buckets = std::vector<std::vector<size_t>>;
  REQUIRE(cut(600) == Buckets{{0, 3}, {3, 4}, {7, 1}});
  REQUIRE(cut(601) == Buckets{{0, 7}, {7, 1}});
  REQUIRE(cut(1) == Buckets{{0, 1}, {1, 2}, {3, 4}, {7, 1}});
  REQUIRE(cut(1 << 20) == Buckets{{0, 8}});
}

TEST_CASE("BucketsOfTensors: says of each tensor, by its number, where it lies") {
  const BlockLayout layout = Layout({{2, 100}, {0, 500}, {3, 1000}, {1, 10}});
  const auto of = [&](size_t elements) {
    return BucketsOfTensors(layout, CutBuckets(layout, elements));
  };
  REQUIRE(of(600) == std::vector<uint32_t>{0, 2, 0, 1});
  REQUIRE(of(1) == std::vector<uint32_t>{1, 3, 0, 2});
  REQUIRE(of(1 << 20) == std::vector<uint32_t>(4));
}

}  // namespace
}  // namespace ringmaster::exact
