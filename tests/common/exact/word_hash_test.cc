#include "common/exact/word_hash.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>
#include <set>
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
      const Halves expected = kernels.front().sum(words.data() + from, count);
      for (const WordKernel& kernel : kernels) {
        INFO(kernel.name << " " << count << " from " << from);
        REQUIRE(kernel.sum(words.data() + from, count) == expected);
      }
      REQUIRE(SumWords(words.data() + from, count) == expected);
    }
  }
}

// What the header says, word by word.
Halves ModelSums(const Words& words) {
  const WordKeys keys = MakeWordKeys();
  std::array<int64_t, 16> lanes{};
  for (size_t i = 0; i < words.size(); ++i) {
    const auto half = [](uint32_t bits) { return int64_t{static_cast<int16_t>(bits & 0xffff)}; };
    lanes[i % 16] += half(words[i]) * half(keys.words[i]);
    lanes[i % 16] += half(words[i] >> 16) * half(keys.words[i] >> 16);
  }
  Halves sums;
  for (size_t lane = 0; lane < 16; ++lane) {
    sums.first += uint64_t{static_cast<uint32_t>(lanes[lane])} * keys.first[lane];
    sums.second += uint64_t{static_cast<uint32_t>(lanes[lane])} * keys.second[lane];
  }
  return sums;
}

TEST_CASE("Words: the portable sums are those of the header") {
  for (const size_t count : {0, 1, 16, 17, 200, 256}) {
    const Words words = RandomWords(count, 2);
    REQUIRE(WordKernels().front().sum(words.data(), words.size()) == ModelSums(words));
  }
}

TEST_CASE("Words: keys are odd, and those of a lane differ in magnitude") {
  const WordKeys keys = MakeWordKeys();
  for (size_t lane = 0; lane < 16; ++lane) {
    REQUIRE((keys.first[lane] % 2 == 1 && keys.second[lane] % 2 == 1));
    std::set<int> magnitudes;
    for (size_t i = lane; i < kBlockElements; i += 16) {
      for (const int shift : {0, 16}) {
        const int key = static_cast<int16_t>(keys.words[i] >> shift & 0xffff);
        REQUIRE(key % 2 != 0);
        magnitudes.insert(std::abs(key));
      }
    }
    REQUIRE(magnitudes.size() == 32);
  }
}

TEST_CASE("Words: their hash does not change from version to version") {
  const std::array<uint8_t, 16> bytes = HashOf(RandomWords(200, 3)).bytes();
  std::string hex;
  for (const uint8_t byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  CHECK(hex == "1356b063a7cf2f41d4404328a5e93737");
}

TEST_CASE("Words: each bit of each of them matters, in both halves") {
  Words words = RandomWords(kBlockElements, 4);
  const Halves whole = SumWords(words.data(), words.size());
  for (uint32_t& word : words) {
    for (int bit = 0; bit < 32; ++bit) {
      word ^= uint32_t{1} << bit;
      const Halves other = SumWords(words.data(), words.size());
      REQUIRE(other.first != whole.first);
      REQUIRE(other.second != whole.second);
      word ^= uint32_t{1} << bit;
    }
  }
}

TEST_CASE("Words: two wrong bits of a lane are found in both halves") {
  Words words = RandomWords(kBlockElements, 6);
  const Halves whole = SumWords(words.data(), words.size());
  std::mt19937_64 random(7);
  for (int i = 0; i < 100'000; ++i) {
    const size_t lane = random() % 16;
    const auto flip = [&](size_t row, size_t bit) { words[16 * row + lane] ^= uint32_t{1} << bit; };
    const size_t row = random() % 16, other_row = random() % 16;
    const size_t bit = random() % 32, other_bit = i % 2 == 0 ? bit : random() % 32;
    if (row == other_row && bit == other_bit) continue;
    flip(row, bit);
    flip(other_row, other_bit);
    const Halves sums = SumWords(words.data(), words.size());
    REQUIRE(sums.first != whole.first);
    REQUIRE(sums.second != whole.second);
    flip(row, bit);
    flip(other_row, other_bit);
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
  for (size_t i = 0; i < words.size(); ++i) {
    for (size_t other = 0; other < i; ++other) {
      Words swapped = words;
      std::swap(swapped[i], swapped[other]);
      REQUIRE_FALSE(HashOf(swapped) == base);
    }
  }
  BlockSum forward, backward;
  for (uint32_t b = 0; b < 9; ++b) AddWords(1, b, words.data() + b, 90, &forward);
  for (uint32_t b = 9; b-- > 0;) AddWords(1, b, words.data() + b, 90, &backward);
  CHECK(forward == backward);
}

TEST_CASE("Words: parts and numbers give different names") {
  CHECK(NameOfPart(StatePart::kParameters, 5) != NameOfPart(TrainedPart(1), 5));
  CHECK(TrainedPart(0) == StatePart::kParameters);
  CHECK(TrainedPart(1) == StatePart::kFirstSlot);
  CHECK(static_cast<int>(TrainedPart(3)) == static_cast<int>(StatePart::kFirstSlot) + 2);
}

}  // namespace
}  // namespace ringmaster::exact
