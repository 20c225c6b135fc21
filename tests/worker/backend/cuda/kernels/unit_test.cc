// Exponents of the next step on the block emulator: those of exact::Units; and kernels of nothing.
#include "worker/backend/cuda/kernels/state.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "common/exact/arithmetic.h"
#include "common/exact/units.h"
#include "tests/common/exact/random_values.h"
#include "tests/worker/backend/cuda/emulation/block_emulator.h"
#include "tests/worker/backend/cuda/emulation/guarded_array.h"

namespace ringmaster::cuda {
namespace {

using exact::BlockLayout;
using exact::kBlockElements;
using exact::RandomValues;
using exact::Units;
using testing::GuardedArray;
using testing::Schedule;

std::vector<uint32_t> FirstBlocksOf(const BlockLayout& layout) {
  std::vector<uint32_t> first_blocks;
  for (const exact::TensorRange& tensor : layout.tensors()) {
    first_blocks.push_back(static_cast<uint32_t>(tensor.first_block));
  }
  first_blocks.push_back(static_cast<uint32_t>(layout.block_count()));
  return first_blocks;
}

// What the update writes of each block, whatever lies behind the elements of a short one.
std::vector<int16_t> LargestOf(const BlockLayout& layout, const std::vector<float>& reduced) {
  std::vector<int16_t> exponents;
  for (size_t b = 0; b < layout.block_count(); ++b) {
    uint32_t largest = 0;
    for (size_t i = 0; i < layout.blocks()[b].count; ++i) {
      const uint32_t bits = exact::FloatBits(reduced[b * kBlockElements + i]);
      largest = std::max(largest, bits & exact::kMagnitudeMask);
    }
    exponents.push_back(static_cast<int16_t>(exact::ExponentOf(largest)));
  }
  return exponents;
}

std::vector<int16_t> ExponentsOf(const Units& units) {
  return {units.exponents().begin(), units.exponents().end()};
}

// In both schedules.
void CheckNext(const BlockLayout& layout, int precision_bits, const std::vector<float>& reduced) {
  Units units(&layout, precision_bits);
  units.Advance(reduced);
  GuardedArray<uint32_t> first_blocks(FirstBlocksOf(layout));
  for (const Schedule schedule : {Schedule::kForward, Schedule::kBackward}) {
    GuardedArray<int16_t> exponents(LargestOf(layout, reduced));
    testing::SetSchedule(schedule);
    const cudaError_t error =
        LaunchClampExponents({static_cast<int64_t>(layout.tensors().size()), first_blocks.data()},
                             precision_bits, exponents.data(), nullptr);
    testing::SetSchedule(Schedule::kForward);
    REQUIRE(error == cudaSuccess);
    REQUIRE(exponents.FirstDifference(ExponentsOf(units)) == -1);
    REQUIRE(exponents.intact());
  }
}

}  // namespace

TEST_CASE("Unit kernels: every size of gradient, precision and count") {
  RandomValues random(61);
  const BlockLayout layout = *BlockLayout::Create({{{2, 700}, {0, 1}, {1, 9 * 256 + 255}}});
  for (int level = -150; level <= 127; level += 14) {
    std::vector<float> reduced(layout.arena_elements());
    // Blocks of a tensor differ, by more than 12 too.
    for (size_t b = 0; b < layout.block_count(); ++b) {
      const int block_level =
          level - static_cast<int>(random.Between(0, 1) * random.Between(0, 30));
      for (size_t i = 0; i < kBlockElements; ++i) {
        const int below = static_cast<int>(random.Between(0, 9));
        reduced[b * kBlockElements + i] =
            random.Between(0, 3) == 0 ? -0.0F : random.Near(block_level - below);
      }
    }
    CheckNext(layout, static_cast<int>(random.Between(8, 24)), reduced);
  }
}

TEST_CASE("Unit kernels: zeros, subnormals and values that are not finite") {
  RandomValues random(62);
  const BlockLayout layout = *BlockLayout::Create({{{0, 700}, {1, 300}}});
  CheckNext(layout, 21, std::vector<float>(layout.arena_elements(), -0.0F));
  std::vector<float> reduced(layout.arena_elements());
  for (float& g : reduced) g = random.Near(-127);
  CheckNext(layout, 8, reduced);
  for (int round = 0; round < 5; ++round) {
    for (float& g : reduced) g = random.AnyBits();
    CheckNext(layout, 24, reduced);
  }
}

TEST_CASE("Unit kernels: one value decides a tensor of more blocks than threads") {
  const BlockLayout layout = *BlockLayout::Create({{{1, 10}, {0, 1100 * 256}, {2, 10}}});
  for (const size_t block : {1, 700, 1100}) {
    std::vector<float> reduced(layout.arena_elements(), 0x1p-10F);
    reduced[block * kBlockElements + 200] = -0x1p9F;
    CheckNext(layout, 21, reduced);
  }
}

TEST_CASE("Unit kernels: reset to the smallest unit") {
  for (const size_t blocks : {1, 255, 256, 257, 1000}) {
    GuardedArray<int16_t> exponents(blocks);
    REQUIRE(LaunchResetExponents(static_cast<int64_t>(blocks), 21, exponents.data(), nullptr) ==
            cudaSuccess);
    REQUIRE(exponents.FirstDifference(std::vector<int16_t>(blocks, 21 - 40)) == -1);
    REQUIRE(exponents.intact());
  }
}

TEST_CASE("State kernels: what has no blocks is nothing to do, and its sums are 0") {
  GuardedArray<uint32_t> first_blocks(std::vector<uint32_t>{0});
  GuardedArray<uint64_t> sum(std::vector<uint64_t>{5, 6});
  GuardedArray<uint64_t> offsets(std::vector<uint64_t>{7});
  for (const cudaError_t error : {
           LaunchClampExponents({0, first_blocks.data()}, 21, nullptr, nullptr),
           LaunchResetExponents(0, 21, nullptr, nullptr),
           LaunchQuantizeAdd(nullptr, 0, {.shards = 1}, nullptr, nullptr, nullptr),
           LaunchWidths(nullptr, nullptr, 0, nullptr, nullptr),
           LaunchPack({}, nullptr, nullptr, nullptr),
           LaunchUnpack({}, nullptr, nullptr, nullptr),
           LaunchUpdate({}, {}, {nullptr, 0}, 21, nullptr),
           LaunchOffsets(nullptr, nullptr, 0, offsets.data(), nullptr),
           LaunchDigest({}, nullptr, 0, nullptr, sum.data(), nullptr),
       }) {
    CHECK(error == cudaSuccess);
  }
  CHECK(sum.FirstDifference({0, 0}) == -1);
  CHECK(offsets.FirstDifference({0}) == -1);
  CHECK((first_blocks.intact() && sum.intact() && offsets.intact()));
  // A number of blocks that is none is still refused.
  CHECK(LaunchResetExponents(-1000, 21, nullptr, nullptr) == cudaErrorInvalidConfiguration);
}

}  // namespace ringmaster::cuda
