#include "common/exact/block_sums.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "common/exact/codec.h"
#include "common/exact/quantize.h"
#include "tests/common/exact/random_values.h"

namespace ringmaster::exact {
namespace {

std::vector<int64_t> ElementsOf(const BlockSums& sums, size_t block, size_t count) {
  std::vector<int64_t> elements(count);
  sums.Read(block, elements);
  return elements;
}

TEST_CASE("BlockSums: sums of any sizes are those of int64, narrow while they fit") {
  RandomValues random(21);
  size_t narrow = 0, wide = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto count = static_cast<size_t>(random.Between(1, 256));
    const auto unit = static_cast<int>(random.Between(-40, 60));
    BlockSums sums(3);
    std::vector<int64_t> expected(count);
    for (int shard = 0; shard < 6; ++shard) {
      const auto largest = static_cast<int>(random.Between(5, random.Between(0, 3) == 0 ? 70 : 29));
      std::vector<float> gradient(count);
      for (float& g : gradient) g = random.Near(unit + largest);
      const FlagKind kind = sums.QuantizeAdd(1, gradient, unit, 1, 8);
      REQUIRE(kind == QuantizeAdd(gradient, unit, 1, 8, expected.data()));
      REQUIRE(ElementsOf(sums, 1, count) == expected);
    }
    ++(sums.narrow(1) != nullptr ? narrow : wide);
    if (sums.narrow(1) != nullptr) {
      REQUIRE(sums.NarrowWidth(1, count) == Width(std::span<const int64_t>(expected)));
    }
    REQUIRE(sums.NarrowWidth(0, count) == 0);
    bool fits = true;
    for (const int64_t sum : expected) fits &= sum >= -(1 << 30) && sum < (1 << 30);
    REQUIRE((fits || sums.narrow(1) == nullptr));
    std::vector<float> got(count), floats(count);
    sums.Dequantize(1, unit, got);
    Dequantize(std::span<const int64_t>(expected), unit, floats.data());
    REQUIRE(got == floats);
    for (const size_t other : {0, 2}) {
      REQUIRE(ElementsOf(sums, other, 256) == std::vector<int64_t>(256));
    }
  }
  CHECK(narrow > 300);
  CHECK(wide > 300);
}

TEST_CASE("BlockSums: the largest narrow sum and the largest quantum do not wrap") {
  BlockSums sums(1);
  const float below = std::nextafter(0x1p30F, 0.0F);  // 2^30 - 64
  for (const float sign : {1.0F, -1.0F}) {
    sums.Clear(0, 1);
    const int64_t edge = sign > 0 ? (1 << 30) - 1 : -(1 << 30);
    sums.Write(0, std::vector<int64_t>{edge, 0});
    REQUIRE(sums.narrow(0) != nullptr);
    REQUIRE(sums.QuantizeAdd(0, std::vector<float>{sign * below, 1}, 0, 1, 1) == FlagKind::kNone);
    CHECK(sums.narrow(0) == nullptr);
    CHECK(ElementsOf(sums, 0, 2) ==
          std::vector<int64_t>{edge + static_cast<int64_t>(sign * below), 1});
  }
}

TEST_CASE("BlockSums: what was wide is narrow again after Clear, Write and MakeNarrow") {
  const std::vector<int64_t> large = {int64_t{1} << 40, -1};
  BlockSums sums(2);
  sums.Write(1, large);
  REQUIRE(sums.narrow(1) == nullptr);
  REQUIRE(ElementsOf(sums, 1, 2) == large);
  sums.Clear(1, 1);
  REQUIRE(sums.narrow(1) != nullptr);
  CHECK(ElementsOf(sums, 1, 256) == std::vector<int64_t>(256));
  sums.Write(1, large);
  sums.Write(1, std::vector<int64_t>{-(1 << 30), (1 << 30) - 1});
  REQUIRE(sums.narrow(1) != nullptr);
  CHECK(ElementsOf(sums, 1, 2) == std::vector<int64_t>{-(1 << 30), (1 << 30) - 1});
  for (const int64_t over : {-(1 << 30) - int64_t{1}, int64_t{1} << 30}) {
    sums.Write(1, std::vector<int64_t>{over});
    CHECK(sums.narrow(1) == nullptr);
    CHECK(ElementsOf(sums, 1, 1) == std::vector<int64_t>{over});
  }
  sums.MakeNarrow(1)[0] = 7;
  CHECK(sums.NarrowWidth(1, 1) == 4);
  CHECK(ElementsOf(sums, 1, 1) == std::vector<int64_t>{7});
}

}  // namespace
}  // namespace ringmaster::exact
