// The digest's sum on the block emulator: the bits of common/exact/digest.h.
#include "worker/backend/cuda/kernels/state.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "common/exact/digest.h"
#include "common/exact/units.h"
#include "common/exact/word_hash.h"
#include "tests/common/exact/random_values.h"
#include "tests/worker/backend/cuda/emulation/block_emulator.h"
#include "tests/worker/backend/cuda/emulation/guarded_array.h"

namespace ringmaster::cuda {
namespace {

using exact::BlockSum;
using exact::kBlockElements;
using exact::RandomValues;
using testing::GuardedArray;
using testing::Schedule;

// Blocks of any counts and widths, with garbage behind the elements of a short one.
struct HashedBlocks {
  HashedBlocks(RandomValues* random, size_t blocks)
      : tensors(blocks), indices(blocks), counts(blocks), integers(blocks * kBlockElements) {
    for (size_t b = 0; b < blocks; ++b) {
      tensors[b] = b % 7 == 6 ? exact::kRecordTensor : static_cast<uint32_t>(b / 7);
      indices[b] = static_cast<uint32_t>(random->Between(0, 0xffffffff));
      counts[b] = static_cast<uint32_t>(b < 256 ? b + 1 : random->Between(1, 256));
      const auto width = static_cast<int>(random->Between(0, 64));
      for (size_t i = 0; i < kBlockElements; ++i) {
        integers[b * kBlockElements + i] = random->Integer(i < counts[b] ? width : 64);
      }
    }
  }
  [[nodiscard]] BlockSum OnHost() {
    BlockSum sum;
    for (size_t b = 0; b < counts.size(); ++b) {
      sum.Add(tensors[b], indices[b], {&integers[b * kBlockElements], counts[b]});
    }
    return sum;
  }
  [[nodiscard]] BlockSum OnDevice() {
    const auto blocks = static_cast<int64_t>(counts.size());
    GuardedArray<uint64_t> scratch(DigestScratch(blocks) / sizeof(uint64_t));
    GuardedArray<uint64_t> sum(2);
    REQUIRE(LaunchDigest({tensors.data(), indices.data(), counts.data()}, integers.data(), blocks,
                         scratch.data(), sum.data(), nullptr) == cudaSuccess);
    REQUIRE((scratch.intact() && sum.intact()));
    return BlockSum::OfHalves(sum[0], sum[1]);
  }

  GuardedArray<uint32_t> tensors;
  GuardedArray<uint32_t> indices;
  GuardedArray<uint32_t> counts;
  GuardedArray<int64_t> integers;
};

}  // namespace

TEST_CASE("Digest kernel: the sum of every number of blocks, whichever thread runs first") {
  RandomValues random(51);
  for (const size_t blocks : {1, 2, 7, 8, 9, 63, 64, 65, 300}) {
    INFO(blocks << " blocks");
    HashedBlocks hashed(&random, blocks);
    const BlockSum expected = hashed.OnHost();
    for (const Schedule schedule : {Schedule::kForward, Schedule::kBackward}) {
      testing::SetSchedule(schedule);
      const BlockSum got = hashed.OnDevice();
      testing::SetSchedule(Schedule::kForward);
      REQUIRE(got == expected);
    }
  }
}

TEST_CASE("Word hash kernel: the hash of values, and whether all are finite") {
  RandomValues random(53);
  for (const size_t blocks : {1, 9, 64, 65, 300}) {
    INFO(blocks << " blocks");
    HashedBlocks hashed(&random, blocks);
    for (size_t b = 0; b < blocks; ++b) hashed.tensors[b] %= 1 << 24;
    GuardedArray<float> values(blocks * kBlockElements);
    for (size_t i = 0; i < blocks * kBlockElements; ++i) {
      values[i] = static_cast<float>(random.Integer(24));
    }
    const uint32_t name = exact::NameOfPart(exact::TrainedPart(2), 0);
    BlockSum of_values;
    for (size_t b = 0; b < blocks; ++b) {
      exact::AddWords(name + hashed.tensors[b], hashed.indices[b], &values[b * kBlockElements],
                      hashed.counts[b], &of_values);
    }
    const auto count = static_cast<int64_t>(blocks);
    const BlockNames names{hashed.tensors.data(), hashed.indices.data(), hashed.counts.data()};
    GuardedArray<uint64_t> scratch(DigestScratch(count) / sizeof(uint64_t));
    GuardedArray<uint64_t> sum(2);
    GuardedArray<uint64_t> finite(1);
    for (const bool wrong : {false, true}) {
      finite[0] = 7;
      if (wrong) values[(blocks - 1) * kBlockElements] = -INFINITY;
      REQUIRE(LaunchWordHash(names, name, values.data(), count, scratch.data(), sum.data(),
                             finite.data(), nullptr) == cudaSuccess);
      CHECK((BlockSum::OfHalves(sum[0], sum[1]) == of_values) == !wrong);
      CHECK(finite[0] == (wrong ? 0 : 7));
    }
    REQUIRE((scratch.intact() && sum.intact() && finite.intact()));
  }
}

TEST_CASE("Exponent hash kernel: that of units, whatever tensors' lengths") {
  RandomValues random(54);
  const auto layout = exact::BlockLayout::Create(std::vector<exact::BlockLayout::Tensor>{
      {2, 255 * 256}, {0, 1}, {3, 256 * 256}, {5, 257 * 256}, {1, 700 * 256 - 9}, {4, 300}});
  REQUIRE(layout.ok());
  const size_t blocks = layout->block_count();
  exact::Units units(&*layout, 21);
  GuardedArray<uint32_t> tensors(blocks), indices(blocks), counts(blocks);
  GuardedArray<int16_t> exponents(blocks);
  for (size_t b = 0; b < blocks; ++b) {
    const exact::Block& block = layout->blocks()[b];
    tensors[b] = block.tensor;
    indices[b] = block.index;
    counts[b] = block.count;
    exponents[b] = static_cast<int16_t>(random.Between(0, 120) - 19);
  }
  REQUIRE(units.Restore({exponents.data(), blocks}).ok());
  const auto count = static_cast<int64_t>(blocks);
  GuardedArray<uint64_t> scratch(DigestScratch(count) / sizeof(uint64_t));
  GuardedArray<uint64_t> sum(2);
  REQUIRE(LaunchExponentHash({tensors.data(), indices.data(), counts.data()}, exponents.data(),
                             count, scratch.data(), sum.data(), nullptr) == cudaSuccess);
  CHECK(BlockSum::OfHalves(sum[0], sum[1]) == units.Hash());
  REQUIRE((scratch.intact() && sum.intact()));
}

TEST_CASE("Digest kernel: more partial sums than threads that add them") {
  RandomValues random(52);
  HashedBlocks hashed(&random, 64 * 64 + 65);
  REQUIRE(hashed.OnDevice() == hashed.OnHost());
}

}  // namespace ringmaster::cuda
