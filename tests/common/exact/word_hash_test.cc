#include "common/exact/word_hash.h"

#include <algorithm>
#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace ringmaster::exact {
namespace {

using Words = std::vector<uint32_t>;

Words RandomWords(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  Words words(count);
  for (uint32_t& word : words) word = static_cast<uint32_t>(random());
  return words;
}

BlockSum HashOf(const Words& words, uint32_t name = 1, uint32_t index = 2) {
  BlockSum sum;
  AddWords(name, index, words.data(), words.size(), &sum);
  return sum;
}

TEST_CASE("Words: every instruction set gives the same sums, at every count and address") {
  const auto kernels = WordKernels();
  REQUIRE(kernels.size() >= 2);
  const Words words = RandomWords(kBlockElements + 16, 1);
  for (size_t count = 0; count <= kBlockElements; ++count) {
    for (const size_t from : {size_t{0}, size_t{1}, size_t{7}}) {
      const WordSums expected = kernels.front().sum(words.data() + from, count);
      for (const WordKernel& kernel : kernels) {
        INFO(kernel.name << " " << count << " from " << from);
        REQUIRE(kernel.sum(words.data() + from, count) == expected);
      }
      REQUIRE(SumWords(words.data() + from, count) == expected);
    }
  }
}

TEST_CASE("Words: the portable sums are those of the header") {
  const WordKeys keys = MakeWordKeys();
  const Words words = RandomWords(kBlockElements, 2);
  WordSums expected;
  for (size_t i = 0; i < words.size(); ++i) {
    REQUIRE(keys.first[i] % 2 == 1);
    REQUIRE(keys.second[i] % 2 == 1);
    expected.halves.first += uint64_t{words[i]} * keys.first[i];
    expected.halves.second += uint64_t{words[i]} * keys.second[i];
    expected.largest = std::max(expected.largest, words[i] & 0x7fffffff);
  }
  REQUIRE(WordKernels().front().sum(words.data(), words.size()) == expected);
}

TEST_CASE("Words: their hash does not change from version to version") {
  const std::array<uint8_t, 16> bytes = HashOf(RandomWords(200, 3)).bytes();
  std::string hex;
  for (const uint8_t byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  CHECK(hex == "540202d110448adf8013f61e6a832c46");
}

TEST_CASE("Words: each bit of each of them matters, in both halves") {
  Words words = RandomWords(kBlockElements, 4);
  const WordSums whole = SumWords(words.data(), words.size());
  for (uint32_t& word : words) {
    for (int bit = 0; bit < 32; ++bit) {
      word ^= uint32_t{1} << bit;
      const WordSums other = SumWords(words.data(), words.size());
      REQUIRE(other.halves.first != whole.halves.first);
      REQUIRE(other.halves.second != whole.halves.second);
      word ^= uint32_t{1} << bit;
    }
  }
}

TEST_CASE("Words: name, index, count and place are part of the hash, the order of blocks is not") {
  const Words words = RandomWords(100, 5);
  const BlockSum base = HashOf(words);
  CHECK_FALSE(HashOf(words, 2, 2) == base);
  CHECK_FALSE(HashOf(words, 1, 3) == base);
  Words longer = words;
  longer.push_back(0);
  CHECK_FALSE(HashOf(longer) == base);
  Words swapped = words;
  std::swap(swapped[3], swapped[90]);
  CHECK_FALSE(HashOf(swapped) == base);
  BlockSum forward, backward;
  for (uint32_t b = 0; b < 9; ++b) AddWords(1, b, words.data() + b, 90, &forward);
  for (uint32_t b = 9; b-- > 0;) AddWords(1, b, words.data() + b, 90, &backward);
  CHECK(forward == backward);
}

TEST_CASE("Words: the largest magnitude tells values that are not finite") {
  std::vector<float> values(70, -1.5F);
  BlockSum sum;
  const auto largest = [&] { return AddWords(0, 0, values.data(), values.size(), &sum); };
  CHECK(largest() == std::bit_cast<uint32_t>(1.5F));
  for (const float wrong : {INFINITY, -INFINITY, NAN}) {
    for (const size_t at : {size_t{0}, size_t{33}, size_t{69}}) {
      values[at] = wrong;
      CHECK(largest() >= 0x7f800000);
      values[at] = 1;
    }
  }
}

TEST_CASE("Words: parts and numbers give different names") {
  CHECK(NameOfPart(StatePart::kParameters, 5) != NameOfPart(TrainedPart(1), 5));
  CHECK(TrainedPart(0) == StatePart::kParameters);
  CHECK(TrainedPart(1) == StatePart::kFirstSlot);
  CHECK(static_cast<int>(TrainedPart(3)) == static_cast<int>(StatePart::kFirstSlot) + 2);
}

}  // namespace
}  // namespace ringmaster::exact
