#include "common/exact/codec.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <memory>
#include <vector>

#include "tests/common/exact/kernel_tables.h"
#include "tests/common/exact/random_values.h"

namespace ringmaster::exact {
namespace {

constexpr uint8_t kCanary = 0xa5;

// The format, bit by bit: bit `b` of a plane of `bits` bits an element goes to lane i % 16, bit
// (i / 16) * bits + b of the lane's stream.
void ModelPlane(std::span<const int64_t> block, int shift, int bits, uint8_t* out) {
  for (size_t i = 0; i < block.size(); ++i) {
    for (int b = 0; b < bits; ++b) {
      if ((block[i] >> (shift + b) & 1) == 0) continue;
      const size_t stream_bit = i / 16 * static_cast<size_t>(bits) + static_cast<size_t>(b);
      const size_t byte = 64 * (stream_bit / 32) + 4 * (i % 16) + stream_bit % 32 / 8;
      out[byte] = static_cast<uint8_t>(out[byte] | 1 << (stream_bit % 8));
    }
  }
}

size_t ModelPlaneBytes(size_t count, int bits) {
  const size_t rows = (count + 15) / 16;
  return 64 * ((rows * static_cast<size_t>(bits) + 31) / 32);
}

std::vector<uint8_t> ModelPack(std::span<const int64_t> block, int width) {
  const int low = std::min(width, 32);
  const size_t low_bytes = ModelPlaneBytes(block.size(), low);
  std::vector<uint8_t> packed(low_bytes + ModelPlaneBytes(block.size(), width - low));
  ModelPlane(block, 0, low, packed.data());
  ModelPlane(block, 32, width - low, packed.data() + low_bytes);
  return packed;
}

int ModelWidth(std::span<const int64_t> block) {
  int width = 0;
  for (const int64_t v : block) {
    int bits = v == 0 ? 0 : 1;
    while (bits > 0 && bits < 64 && (v >> (bits - 1)) != (v < 0 ? -1 : 0)) ++bits;
    width = std::max(width, bits);
  }
  return (width + 1) / 2 * 2;
}

int WidthWith(const Kernels& kernels, const std::vector<int64_t>& block) {
  return Width(kernels, std::span<const int64_t>(block));
}

std::vector<uint8_t> PackWith(const Kernels& kernels, std::span<const int64_t> block, int width) {
  std::vector<uint8_t> packed(PackedBytes(width, block.size()) + 64, kCanary);
  Pack(kernels, block, width, packed.data());
  for (size_t i = packed.size() - 64; i < packed.size(); ++i) REQUIRE(packed[i] == kCanary);
  packed.resize(packed.size() - 64);
  return packed;
}

// From a heap buffer of exactly the packed bytes after `misalignment` others, so that a sanitizer
// sees a read past its end.
std::vector<int64_t> UnpackWith(const Kernels& kernels, const std::vector<uint8_t>& packed,
                                int width, size_t count, size_t misalignment) {
  const auto moved = std::make_unique<uint8_t[]>(misalignment + packed.size());
  std::copy(packed.begin(), packed.end(), moved.get() + misalignment);
  std::vector<int64_t> block(count, 77);
  Unpack(kernels, moved.get() + misalignment, width, std::span(block));
  return block;
}

// The same of int32 elements, where `packed` is what int64 ones gave.
void CheckNarrow(const Kernels& kernels, const std::vector<int64_t>& block, int width,
                 const std::vector<uint8_t>& packed) {
  const std::vector<int32_t> narrow(block.begin(), block.end());
  std::vector<uint8_t> again(packed.size());
  Pack(kernels, std::span<const int32_t>(narrow), width, again.data());
  REQUIRE(again == packed);
  REQUIRE(Width(kernels, std::span<const int32_t>(narrow)) ==
          Width(kernels, std::span<const int64_t>(block)));
  std::vector<int32_t> got(block.size(), 77), addends(block.size()), expected(block.size());
  Unpack(kernels, packed.data(), width, std::span(got));
  REQUIRE(got == narrow);
  for (size_t i = 0; i < block.size(); ++i) {
    addends[i] = static_cast<int32_t>(i * 0x9abcdef1);
    expected[i] =
        static_cast<int32_t>(static_cast<uint32_t>(addends[i]) + static_cast<uint32_t>(narrow[i]));
  }
  REQUIRE(UnpackSum(kernels, packed.data(), width, std::span<const int32_t>(addends), got.data()) ==
          ModelWidth(std::vector<int64_t>(expected.begin(), expected.end())));
  REQUIRE(got == expected);
  // What adds up to little, too, and to nothing.
  for (size_t i = 0; i < block.size(); ++i)
    addends[i] = static_cast<int32_t>((i == 3 ? 1U : 0U) - static_cast<uint32_t>(narrow[i]));
  REQUIRE(UnpackSum(kernels, packed.data(), width, std::span<const int32_t>(addends), got.data()) ==
          (block.size() > 3 ? 2 : 0));
  for (size_t i = 0; i < block.size(); ++i) addends[i] = static_cast<int32_t>(i * 0x9abcdef1);
  (void)UnpackSum(kernels, packed.data(), width, std::span<const int32_t>(addends), addends.data());
  REQUIRE(addends == expected);
}

void CheckRoundtrip(const Kernels& kernels, const std::vector<int64_t>& block, int width,
                    size_t misalignment) {
  INFO(kernels.name << ", width " << width << ", " << block.size() << " elements");
  const std::vector<uint8_t> packed = PackWith(kernels, block, width);
  REQUIRE(packed == ModelPack(block, width));
  REQUIRE(UnpackWith(kernels, packed, width, block.size(), misalignment) == block);

  std::vector<int64_t> sums(block.size());
  std::vector<int64_t> expected(block.size());
  for (size_t i = 0; i < block.size(); ++i) {
    sums[i] = static_cast<int64_t>(i * 0x123456789abcdef);
    expected[i] =
        static_cast<int64_t>(static_cast<uint64_t>(sums[i]) + static_cast<uint64_t>(block[i]));
  }
  std::vector<int64_t> got(block.size());
  REQUIRE(UnpackSum(kernels, packed.data(), width, std::span<const int64_t>(sums), got.data()) ==
          ModelWidth(expected));
  REQUIRE(got == expected);
  (void)UnpackSum(kernels, packed.data(), width, std::span<const int64_t>(sums), sums.data());
  REQUIRE(sums == expected);
  if (width <= 32) CheckNarrow(kernels, block, width, packed);
}

TEST_CASE("Codec: every even width and count comes back, in the bytes of the format") {
  RandomValues random(1);
  for (const Kernels* kernels : RunnableKernels()) {
    for (int width = 0; width <= 64; width += 2) {
      for (size_t count = 1; count <= kBlockElements; count += count % 16 == 0 ? 1 : 5) {
        CheckRoundtrip(*kernels, random.Integers(width, count), width, count % 64);
      }
      for (size_t count = 16; count <= kBlockElements; count += 16) {
        CheckRoundtrip(*kernels, random.Integers(width, count), width, (count + width) % 64);
      }
    }
  }
}

TEST_CASE("Codec: a width larger than needed comes back too") {
  RandomValues random(2);
  for (const Kernels* kernels : RunnableKernels()) {
    for (int width = 2; width <= 64; width += 2) {
      const auto need = static_cast<int>(random.Between(0, width));
      CheckRoundtrip(*kernels, random.Integers(need, kBlockElements), width, 3);
    }
  }
}

TEST_CASE("Codec: all-ones and single-bit blocks come back at every width") {
  for (const Kernels* kernels : RunnableKernels()) {
    for (int width = 2; width <= 64; width += 2) {
      CheckRoundtrip(*kernels, std::vector<int64_t>(kBlockElements, -1), width, 0);
      std::vector<int64_t> block(kBlockElements);
      for (size_t i = 0; i < block.size(); ++i) {
        block[i] = static_cast<int64_t>(uint64_t{1} << (i * 7 % static_cast<size_t>(width)));
        // The top bit is the sign's.
        block[i] = block[i] << (64 - width) >> (64 - width);
      }
      CheckRoundtrip(*kernels, block, width, 1);
    }
  }
}

TEST_CASE("Codec: the width is the smallest even one") {
  for (const Kernels* kernels : RunnableKernels()) {
    INFO(kernels->name);
    REQUIRE(WidthWith(*kernels, std::vector<int64_t>(256, 0)) == 0);
    REQUIRE(WidthWith(*kernels, std::vector<int64_t>(7, -1)) == 2);
    REQUIRE(WidthWith(*kernels, std::vector<int64_t>{1}) == 2);
    REQUIRE(WidthWith(*kernels, std::vector<int64_t>{2}) == 4);
    REQUIRE(WidthWith(*kernels, std::vector<int64_t>{-2}) == 2);
    REQUIRE(WidthWith(*kernels, std::vector<int64_t>{std::numeric_limits<int64_t>::min()}) == 64);
    REQUIRE(WidthWith(*kernels, std::vector<int64_t>{std::numeric_limits<int64_t>::max()}) == 64);
    RandomValues random(3);
    for (int round = 0; round < 3000; ++round) {
      const auto count = static_cast<size_t>(random.Between(1, 256));
      std::vector<int64_t> block(count);
      block[static_cast<size_t>(random.Between(0, static_cast<int64_t>(count) - 1))] =
          random.Integer(static_cast<int>(random.Between(0, 64)));
      REQUIRE(WidthWith(*kernels, block) == ModelWidth(block));
    }
  }
}

TEST_CASE("Codec: packed sizes are whole vectors") {
  REQUIRE(PackedBytes(0, 256) == 0);
  REQUIRE(PackedBytes(22, 256) == 704);
  REQUIRE(PackedBytes(64, 256) == 2048);
  REQUIRE(PackedBytes(2, 1) == 64);
  REQUIRE(PackedBytes(34, 1) == 128);
  for (int width = 0; width <= 64; width += 2) {
    for (size_t count = 1; count <= kBlockElements; ++count) {
      REQUIRE(PackedBytes(width, count) == ModelPack(std::vector<int64_t>(count), width).size());
    }
  }
}

TEST_CASE("Codec: a width from the wire is tested") {
  for (const int width : {0, 2, 32, 34, 64}) REQUIRE(ValidWidth(width));
  for (const int width : {-2, -1, 1, 33, 63, 65, 66, 255}) REQUIRE_FALSE(ValidWidth(width));
}

TEST_CASE("Codec: the public functions take the best kernels") {
  const std::vector<int64_t> block = RandomValues(4).Integers(21, 200);
  const int width = Width(std::span(block));
  REQUIRE(width == ModelWidth(block));
  std::vector<uint8_t> packed(PackedBytes(width, block.size()));
  Pack(std::span(block), width, packed.data());
  REQUIRE(packed == ModelPack(block, width));
  std::vector<int64_t> unpacked(block.size());
  Unpack(packed.data(), width, std::span(unpacked));
  REQUIRE(unpacked == block);
}

}  // namespace
}  // namespace ringmaster::exact
