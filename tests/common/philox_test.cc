#include "common/numeric/philox.h"

#include <catch2/catch.hpp>

#include <set>

namespace ringmaster {
namespace {

using Purpose = PhiloxStream::Purpose;

TEST_CASE("Philox: the published vectors of ten rounds come out") {
  CHECK(Philox4x32({0, 0, 0, 0}, {0, 0}) ==
        PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("Philox: an element is its word of its block, under the stream's key and counter") {
  const PhiloxStream stream(1, Purpose::kDropout, 2, 3, "drop");
  for (const uint64_t i : {uint64_t{0}, uint64_t{5}, uint64_t{1} << 40}) {
    const auto [low, high] = stream.counter_high();
    const uint64_t block = i / 4;
    const PhiloxBlock expected =
        Philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), low, high},
                   stream.key());
    CHECK(stream.Block(block) == expected);
    CHECK(stream.At(i) == expected[i % 4]);
    CHECK(stream.Uniform(i) == static_cast<float>(expected[i % 4] >> 8) / 16777216.0F);
  }
}

TEST_CASE("Philox: everything that names a stream changes it") {
  const std::set<uint32_t> first = {
      PhiloxStream(1, Purpose::kDropout, 2, 3, "a").At(0),
      PhiloxStream(2, Purpose::kDropout, 2, 3, "a").At(0),
      PhiloxStream(1, Purpose::kInitialize, 2, 3, "a").At(0),
      PhiloxStream(1, Purpose::kDropout, 3, 2, "a").At(0),
      PhiloxStream(1, Purpose::kDropout, 2, 4, "a").At(0),
      PhiloxStream(1, Purpose::kDropout, 2, 3, "b").At(0),
  };
  CHECK(first.size() == 6);
  CHECK(PhiloxStream(1, Purpose::kDropout, 2, 3, "a").At(7) ==
        PhiloxStream(1, Purpose::kDropout, 2, 3, "a").At(7));
}

TEST_CASE("Philox: draws are in range and evenly spread") {
  const PhiloxStream stream(4, Purpose::kRandomCrop, 0, 0, "");
  constexpr int kDraws = 9000;
  std::array<int, 9> counts = {};
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) {
    const uint32_t below = stream.Below(static_cast<uint64_t>(i), 9);
    REQUIRE(below < 9);
    ++counts[below];
    const float uniform = stream.Uniform(static_cast<uint64_t>(i));
    REQUIRE(uniform >= 0);
    REQUIRE(uniform < 1);
    sum += double{uniform};
  }
  for (const int count : counts) CHECK(std::abs(count - 1000) < 120);
  CHECK(sum / kDraws == Approx(0.5).margin(0.01));
}

}  // namespace
}  // namespace ringmaster
