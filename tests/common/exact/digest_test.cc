#include "common/exact/digest.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "common/exact/word_hash.h"
#include "tests/common/exact/random_values.h"

namespace ringmaster::exact {
namespace {

std::array<uint8_t, 16> HashOf(uint32_t tensor, uint32_t index,
                               const std::vector<int64_t>& integers) {
  BlockSum sum;
  sum.Add(tensor, index, integers);
  const std::vector<int32_t> narrow(integers.begin(), integers.end());
  if (std::ranges::equal(narrow, integers)) {
    BlockSum same;
    same.Add(tensor, index, narrow);
    REQUIRE(same == sum);
  }
  return sum.bytes();
}

// What the header says, in scalar arithmetic.
uint64_t Finalizer(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

unsigned __int128 ModelOfWords(uint32_t tensor, uint32_t index, uint64_t count,
                               const std::vector<uint32_t>& words) {
  constexpr uint64_t kPhi = 0x9e3779b97f4a7c15;
  const Halves sums = WordKernels().front().sum(words.data(), words.size());
  const uint64_t key = Finalizer(((uint64_t{tensor} << 32) + index) + kPhi);
  const uint64_t second_key = Finalizer(key + count * kPhi);
  uint64_t first = Finalizer(sums.first ^ key);
  const uint64_t second = Finalizer((sums.second ^ second_key) + first);
  first += Finalizer(second ^ key);
  return (static_cast<unsigned __int128>(second) << 64) + first;
}

unsigned __int128 ModelHash(uint32_t tensor, uint32_t index, const std::vector<int64_t>& integers) {
  std::vector<uint32_t> low, high;
  for (const int64_t integer : integers) {
    const auto narrow = static_cast<int32_t>(integer);
    low.push_back(static_cast<uint32_t>(narrow));
    high.push_back(static_cast<uint32_t>(
        (static_cast<uint64_t>(integer) - static_cast<uint64_t>(int64_t{narrow})) >> 32));
  }
  unsigned __int128 sum = ModelOfWords(tensor, index, low.size(), low);
  if (std::ranges::any_of(high, [](uint32_t word) { return word != 0; })) {
    sum += ModelOfWords(tensor, index, high.size() + 256, high);
  }
  return sum;
}

TEST_CASE("BlockSum: equals the scalar model at every count") {
  RandomValues random(21);
  for (size_t count = 1; count <= kBlockElements; ++count) {
    const std::vector<int64_t> integers = random.Integers(static_cast<int>(count % 65), count);
    const unsigned __int128 expected = ModelHash(5, 9, integers);
    const std::array<uint8_t, 16> bytes = HashOf(5, 9, integers);
    for (size_t byte = 0; byte < 16; ++byte) {
      REQUIRE(bytes[byte] == static_cast<uint8_t>(expected >> (8 * byte)));
    }
  }
}

TEST_CASE("BlockSum: the order of blocks and of partial sums does not matter") {
  RandomValues random(22);
  BlockSum forward;
  BlockSum left;
  BlockSum right;
  std::vector<std::vector<int64_t>> blocks(40);
  for (auto& block : blocks) block = random.Integers(24, 200);
  for (uint32_t b = 0; b < 40; ++b) forward.Add(b / 7, b % 7, blocks[b]);
  for (uint32_t b = 40; b-- > 0;) (b % 3 == 0 ? left : right).Add(b / 7, b % 7, blocks[b]);
  right.Add(left);
  REQUIRE(forward == right);
  REQUIRE(forward.bytes() == right.bytes());
}

TEST_CASE("BlockSum: the carry reaches the upper half") {
  // Sums of many blocks equal sums in 128-bit arithmetic.
  unsigned __int128 expected = 0;
  BlockSum sum;
  for (uint32_t b = 0; b < 100; ++b) {
    expected += ModelHash(1, b, {int64_t{b}});
    sum.Add(1, b, std::vector<int64_t>{int64_t{b}});
  }
  const std::array<uint8_t, 16> bytes = sum.bytes();
  for (size_t byte = 0; byte < 16; ++byte) {
    REQUIRE(bytes[byte] == static_cast<uint8_t>(expected >> (8 * byte)));
  }
}

TEST_CASE("BlockSum: a sum from halves is the one that was taken apart, and adds on") {
  RandomValues random(24);
  BlockSum sum;
  for (uint32_t b = 0; b < 20; ++b) sum.Add(2, b, random.Integers(30, 256));
  std::array<uint64_t, 2> halves;
  std::memcpy(halves.data(), sum.bytes().data(), sizeof(halves));
  BlockSum copy = BlockSum::OfHalves(halves[0], halves[1]);
  REQUIRE(copy == sum);
  const std::vector<int64_t> more = random.Integers(40, 9);
  sum.Add(3, 0, more);
  copy.Add(3, 0, more);
  REQUIRE(copy.bytes() == sum.bytes());
}

TEST_CASE("BlockSum: any small change, swap or move of a block changes it") {
  RandomValues random(23);
  std::set<std::array<uint8_t, 16>> seen;
  size_t hashes = 0;
  const auto add = [&](uint32_t tensor, uint32_t index, const std::vector<int64_t>& integers) {
    seen.insert(HashOf(tensor, index, integers));
    ++hashes;
  };
  const std::vector<int64_t> base = random.Integers(22, kBlockElements);
  add(0, 0, base);
  for (size_t i = 0; i < base.size(); ++i) {
    for (int bit = 0; bit < 64; ++bit) {  // one bit, and the same bit of a neighbour as well
      std::vector<int64_t> changed = base;
      changed[i] = static_cast<int64_t>(static_cast<uint64_t>(changed[i]) ^ uint64_t{1} << bit);
      add(0, 0, changed);
      int64_t& next = changed[(i + 1) % base.size()];
      next = static_cast<int64_t>(static_cast<uint64_t>(next) ^ uint64_t{1} << bit);
      add(0, 0, changed);
    }
    std::vector<int64_t> swapped = base;
    std::swap(swapped[i], swapped[(i + 16) % base.size()]);
    if (swapped != base) add(0, 0, swapped);
    std::vector<int64_t> shifted = base;
    shifted[i] += 1;
    shifted[(i + 5) % base.size()] -= 1;
    add(0, 0, shifted);
  }
  for (uint32_t other = 1; other < 1000; ++other) {
    add(other, 0, base);
    add(0, other, base);
  }
  add(kRecordTensor, 0, base);
  for (size_t count = 1; count <= kBlockElements; ++count) {
    add(0, 0, std::vector<int64_t>(count));
  }
  REQUIRE(seen.size() == hashes);
}

TEST_CASE("BlockSum: two blocks that change places change the sum") {
  const std::vector<int64_t> a(256, 3);
  const std::vector<int64_t> b(256, 4);
  BlockSum straight;
  straight.Add(0, 0, a);
  straight.Add(0, 1, b);
  BlockSum crossed;
  crossed.Add(0, 0, b);
  crossed.Add(0, 1, a);
  REQUIRE_FALSE(straight == crossed);
}

TEST_CASE("Digest: is the SHA-256 that the header names") {
  Sha256Digest result;
  for (size_t i = 0; i < result.size(); ++i) result[i] = static_cast<uint8_t>(i);
  const Sha256Digest first = FirstDigest(result);
  REQUIRE(first == Sha256Of("ringmaster digest 0" + std::string(result.begin(), result.end())));

  BlockSum sum;
  sum.Add(1, 2, std::vector<int64_t>{-5});
  const BlockSum state = BlockSum::OfHalves(7, 8);
  const std::string given = "\x07" + std::string(7, '\0') + "\x08" + std::string(7, '\0');
  REQUIRE(FirstDigest(result, state) ==
          Sha256Of("ringmaster digest 0" + std::string(result.begin(), result.end()) + given));
  DigestLink link{.before = first, .maps = {}, .sums = sum};
  link.maps.fill(0x55);
  std::string text(first.begin(), first.end());
  text += std::string("\x02\x01\0\0\0\0\0\0", 8);
  text += std::string(32, '\x55');
  for (const BlockSum& each : {sum, state}) {
    const std::array<uint8_t, 16> bytes = each.bytes();
    REQUIRE(BlockSum::OfBytes(bytes) == each);
    text.append(bytes.begin(), bytes.end());
  }
  REQUIRE(NextDigest(link, 0x102, state) == Sha256Of(text));
}

}  // namespace
}  // namespace ringmaster::exact
