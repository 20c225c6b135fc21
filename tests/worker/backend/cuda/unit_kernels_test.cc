// Exponents of the next step on the block emulator: those of exact::Units.
#include "worker/backend/cuda/unit_kernels.h"

#include <catch2/catch.hpp>
#include <vector>

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

std::vector<uint32_t> CountsOf(const BlockLayout& layout) {
  std::vector<uint32_t> counts;
  for (const exact::Block& block : layout.blocks()) counts.push_back(block.count);
  return counts;
}

std::vector<uint32_t> FirstBlocksOf(const BlockLayout& layout) {
  std::vector<uint32_t> first_blocks;
  for (const exact::TensorRange& tensor : layout.tensors()) {
    first_blocks.push_back(static_cast<uint32_t>(tensor.first_block));
  }
  first_blocks.push_back(static_cast<uint32_t>(layout.block_count()));
  return first_blocks;
}

// The tables of a layout in device memory.
class UnitsOnDevice {
 public:
  explicit UnitsOnDevice(const BlockLayout& layout)
      : counts_(CountsOf(layout)), first_blocks_(FirstBlocksOf(layout)) {}

  [[nodiscard]] UnitBlocks view() {
    return {static_cast<int64_t>(counts_.size()), counts_.data(),
            static_cast<int64_t>(first_blocks_.size()) - 1, first_blocks_.data()};
  }
  [[nodiscard]] std::vector<int16_t> Next(const std::vector<float>& gradients, int precision_bits) {
    GuardedArray<float> reduced(gradients);
    GuardedArray<int16_t> exponents(counts_.size());
    REQUIRE(LaunchNextExponents(view(), reduced.data(), precision_bits, exponents.data(),
                                nullptr) == cudaSuccess);
    REQUIRE(exponents.intact());
    return exponents.values();
  }

 private:
  GuardedArray<uint32_t> counts_;
  GuardedArray<uint32_t> first_blocks_;
};

std::vector<int16_t> ExponentsOf(const Units& units) {
  return {units.exponents().begin(), units.exponents().end()};
}

// In both schedules; what is behind the elements of a short block is enormous.
void CheckNext(const BlockLayout& layout, int precision_bits, std::vector<float> reduced) {
  for (size_t b = 0; b < layout.block_count(); ++b) {
    for (size_t i = layout.blocks()[b].count; i < kBlockElements; ++i) {
      reduced[b * kBlockElements + i] = 0x1p126F;
    }
  }
  Units units(&layout, precision_bits);
  units.Advance(reduced);
  UnitsOnDevice device(layout);
  for (const Schedule schedule : {Schedule::kForward, Schedule::kBackward}) {
    testing::SetSchedule(schedule);
    const std::vector<int16_t> got = device.Next(reduced, precision_bits);
    testing::SetSchedule(Schedule::kForward);
    REQUIRE((got == ExponentsOf(units)));
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

}  // namespace ringmaster::cuda
