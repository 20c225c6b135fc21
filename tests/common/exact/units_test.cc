#include "common/exact/units.h"

#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "tests/common/exact/random_values.h"

namespace ringmaster::exact {
namespace {

constexpr int kPrecision = 21;
constexpr int kSmallest = kPrecision - 40;

// Two tensors, the first of three blocks and the second of one short block.
BlockLayout TwoTensors() { return *BlockLayout::Create({{{0, 700}, {1, 20}}}); }

TEST_CASE("Units: start at the smallest unit") {
  const BlockLayout layout = TwoTensors();
  const Units units(&layout, kPrecision);
  for (size_t b = 0; b < layout.block_count(); ++b) REQUIRE(units.unit_exponent(b) == -40);
}

TEST_CASE("Units: a block follows its own largest, at most 12 below its tensor's") {
  const BlockLayout layout = TwoTensors();
  Units units(&layout, kPrecision);
  std::vector<float> reduced(layout.arena_elements());
  reduced[3] = -1.75F;        // block 0: E = 0
  reduced[300] = 0x1p-4F;     // block 1: E = -4
  reduced[699] = 0x1.8p-15F;  // block 2: E = -15, lifted to -12
  units.Advance(reduced);
  REQUIRE(std::vector<int16_t>(units.exponents().begin(), units.exponents().end()) ==
          std::vector<int16_t>{0, -4, -12, kSmallest});
  REQUIRE(units.unit_exponent(1) == -4 - kPrecision);

  reduced[699] = 0;  // all zero: its tensor's largest minus 12
  reduced[3 * 256 + 19] = std::numeric_limits<float>::max();
  units.Advance(reduced);
  REQUIRE(std::vector<int16_t>(units.exponents().begin(), units.exponents().end()) ==
          std::vector<int16_t>{0, -4, -12, 127});

  units.Reset();
  for (const int16_t exponent : units.exponents()) REQUIRE(exponent == kSmallest);
}

TEST_CASE("Units: never under 2^-40, subnormals and signed zeros included") {
  const BlockLayout layout = TwoTensors();
  Units units(&layout, kPrecision);
  std::vector<float> reduced(layout.arena_elements(), -0.0F);
  reduced[0] = 0x1p-18F;  // just above the clamp
  reduced[256] = std::numeric_limits<float>::denorm_min();
  units.Advance(reduced);
  REQUIRE(units.exponents()[0] == -18);
  REQUIRE(units.exponents()[1] == kSmallest);
  REQUIRE(units.exponents()[2] == kSmallest);
}

TEST_CASE("Units: elements past a block's count are not looked at") {
  const BlockLayout layout = TwoTensors();
  Units units(&layout, kPrecision);
  std::vector<float> reduced(layout.arena_elements());
  reduced[700] = 1.0F;
  units.Advance(reduced);
  for (const int16_t exponent : units.exponents()) REQUIRE(exponent == kSmallest);
}

TEST_CASE("Units: equal the rule on random gradients") {
  RandomValues random(11);
  const BlockLayout layout = TwoTensors();
  for (int round = 0; round < 500; ++round) {
    const auto precision = static_cast<int>(random.Between(8, 24));
    Units units(&layout, precision);
    std::vector<float> reduced(layout.arena_elements());
    const auto level = static_cast<int>(random.Between(-140, 120));
    for (float& g : reduced) g = random.Near(level + static_cast<int>(random.Between(-20, 7)));
    units.Advance(reduced);
    for (const TensorRange& tensor : layout.tensors()) {
      float largest = 0;
      for (size_t i = 0; i < tensor.elements; ++i) {
        largest = std::max(largest, std::fabs(reduced[tensor.offset() + i]));
      }
      for (size_t b = 0; b < tensor.block_count; ++b) {
        float block_largest = 0;
        for (size_t i = 256 * b; i < std::min<size_t>(tensor.elements, 256 * b + 256); ++i) {
          block_largest = std::max(block_largest, std::fabs(reduced[tensor.offset() + i]));
        }
        int expected = std::max(std::ilogb(block_largest), std::ilogb(largest) - 12);
        expected = std::min(std::max(expected, precision - 40), 127);
        REQUIRE(units.exponents()[tensor.first_block + b] == expected);
      }
    }
  }
}

TEST_CASE("Units: restore what was saved, refuse another model's or a damaged state") {
  const BlockLayout layout = TwoTensors();
  Units units(&layout, kPrecision);
  REQUIRE(units.Restore(std::vector<int16_t>{-19, 0, 127, 5}).ok());
  REQUIRE(units.unit_exponent(2) == 127 - kPrecision);
  REQUIRE_THAT(Message(units.Restore(std::vector<int16_t>{1, 2, 3})),
               Catch::Contains("3 of them, expected 4"));
  for (const int16_t wrong : {-20, 128}) {
    REQUIRE_THAT(Message(units.Restore(std::vector<int16_t>{0, wrong, 0, 0})),
                 Catch::Contains("at block 1, expected -19 to 127"));
  }
  REQUIRE(units.exponents()[3] == 5);
}

TEST_CASE("Units: each exponent is part of the hash, and so is its place") {
  const BlockLayout layout = *BlockLayout::Create({{{1, 600 * 256}, {0, 300 * 256}, {2, 3}}});
  std::vector<int16_t> exponents(layout.block_count(), 3);
  const auto hash = [&] {
    Units units(&layout, kPrecision);
    REQUIRE(units.Restore(exponents).ok());
    return units.Hash();
  };
  std::set<std::array<uint8_t, 16>> seen = {hash().bytes()};
  for (int16_t& exponent : exponents) {
    exponent = 4;
    seen.insert(hash().bytes());
    exponent = 3;
  }
  REQUIRE(seen.size() == 1 + exponents.size());
}

TEST_CASE("LargestMagnitude: tells values that are not finite") {
  for (const size_t count : {size_t{70}, size_t{kBlockElements}}) {
    std::vector<float> values(count, -1.5F);
    CHECK(LargestMagnitude(values) == std::bit_cast<uint32_t>(1.5F));
    for (const float wrong : {INFINITY, -INFINITY, NAN}) {
      for (const size_t at : {size_t{0}, size_t{33}, count - 1}) {
        values[at] = wrong;
        CHECK(LargestMagnitude(values) >= kInfinityBits);
        values[at] = 1;
      }
    }
  }
}

}  // namespace
}  // namespace ringmaster::exact
