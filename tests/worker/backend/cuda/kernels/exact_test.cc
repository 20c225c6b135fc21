// Quantizing and packing on the block emulator: every bit as common/exact makes it.
#include "worker/backend/cuda/kernels/state.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "common/exact/block.h"
#include "common/exact/codec.h"
#include "tests/common/exact/random_values.h"
#include "tests/worker/backend/cuda/emulation/block_emulator.h"
#include "tests/worker/backend/cuda/emulation/guarded_array.h"

namespace ringmaster::cuda {
namespace {

using exact::FlagKind;
using exact::kBlockElements;
using exact::RandomValues;
using testing::GuardedArray;
using testing::Schedule;

constexpr Schedule kSchedules[] = {Schedule::kForward, Schedule::kBackward};

size_t BlocksOf(size_t elements) { return (elements + kBlockElements - 1) / kBlockElements; }

// The gradients of a tensor and how they are quantized.
struct TensorCase {
  std::vector<float> gradient;
  std::vector<int> unit_exponents;  // of each block
  int precision_bits = 21;
  float scale = 1;
  uint32_t shards = 1;
};

struct Sums {
  std::vector<int64_t> integers;  // whole blocks
  uint64_t flag = kNothingRefused;
  bool operator==(const Sums&) const = default;
};

// One element at a time, so that it is known which one is refused.
void AddOnHost(const TensorCase& tensor, Sums* sums) {
  for (size_t i = 0; i < tensor.gradient.size(); ++i) {
    const FlagKind kind =
        exact::QuantizeAdd({&tensor.gradient[i], 1}, tensor.unit_exponents[i / kBlockElements],
                           tensor.scale, tensor.shards, &sums->integers[i]);
    if (kind == FlagKind::kNone) continue;
    sums->flag = std::min(sums->flag, 4 * uint64_t{i} + static_cast<uint64_t>(kind));
  }
}

void AddOnDevice(const TensorCase& tensor, GuardedArray<int64_t>* sums,
                 GuardedArray<uint64_t>* flag) {
  GuardedArray<float> gradient(tensor.gradient);
  GuardedArray<int16_t> exponents(tensor.unit_exponents.size());
  for (size_t b = 0; b < exponents.size(); ++b) {
    exponents[b] = static_cast<int16_t>(tensor.unit_exponents[b] + tensor.precision_bits);
  }
  GuardedArray<float> scale(std::vector{tensor.scale});
  REQUIRE(LaunchQuantizeAdd(gradient.data(), static_cast<int64_t>(gradient.size()),
                            {exponents.data(), tensor.precision_bits, scale.data(), tensor.shards},
                            sums->data(), flag->data(), nullptr) == cudaSuccess);
}

// What is added to is whatever was there.
void CheckSums(const std::vector<TensorCase>& tensors, RandomValues* random) {
  Sums expected;
  expected.integers = random->Integers(40, tensors[0].unit_exponents.size() * kBlockElements);
  const std::vector<int64_t> before = expected.integers;
  for (const TensorCase& tensor : tensors) AddOnHost(tensor, &expected);
  for (const Schedule schedule : kSchedules) {
    testing::SetSchedule(schedule);
    GuardedArray<int64_t> sums(before);
    GuardedArray<uint64_t> flag(std::vector{kNothingRefused});
    for (const TensorCase& tensor : tensors) AddOnDevice(tensor, &sums, &flag);
    testing::SetSchedule(Schedule::kForward);
    REQUIRE(sums.FirstDifference(expected.integers) == -1);
    REQUIRE(flag[0] == expected.flag);
    REQUIRE(sums.intact());
    REQUIRE(flag.intact());
  }
}

// One of what a gradient may hold: usual values, ties, zeros, subnormals, or anything at all.
float AnyGradient(RandomValues* random, int log2_unit, bool anything) {
  switch (random->Between(0, anything ? 7 : 5)) {
    case 0:
      return 0.0F;
    case 1:
      return random->Near(-127);
    case 2:
      return log2_unit > -100 && log2_unit < 100 ? random->Tie(log2_unit) : -0.0F;
    case 3:
      return random->Near(log2_unit + static_cast<int>(random->Between(-3, 60)));
    case 6:
      return random->AnyBits();
    case 7:
      return random->Between(0, 1) == 0 ? std::numeric_limits<float>::quiet_NaN()
                                        : -std::numeric_limits<float>::infinity();
    default:
      return random->Near(log2_unit + static_cast<int>(random->Between(-3, 30)));
  }
}

TensorCase AnyTensor(RandomValues* random, size_t elements, int log2_scale, uint32_t shards) {
  TensorCase tensor;
  tensor.precision_bits = static_cast<int>(random->Between(8, 24));
  tensor.scale = std::ldexp(1.0F, log2_scale);
  tensor.shards = shards;
  const bool anything = random->Between(0, 1) == 0;
  for (size_t b = 0; b < BlocksOf(elements); ++b) {
    tensor.unit_exponents.push_back(static_cast<int>(random->Between(-40, 119)));
  }
  for (size_t i = 0; i < elements; ++i) {
    const int log2_unit = tensor.unit_exponents[i / kBlockElements] - log2_scale;
    tensor.gradient.push_back(AnyGradient(random, log2_unit, anything));
  }
  return tensor;
}

// Blocks of every width and of every count, with garbage behind the elements of a short one.
struct Blocks {
  std::vector<int64_t> integers;
  std::vector<uint32_t> counts;

  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(counts.size()); }
  [[nodiscard]] std::span<const int64_t> at(size_t b) const {
    return {&integers[b * kBlockElements], counts[b]};
  }
};

Blocks EveryWidthAndCount(RandomValues* random) {
  Blocks blocks;
  const auto add = [&](std::vector<int64_t> integers) {
    blocks.counts.push_back(static_cast<uint32_t>(integers.size()));
    integers.resize(kBlockElements, 0x5a5a5a5a5a5a5a5a);
    blocks.integers.insert(blocks.integers.end(), integers.begin(), integers.end());
  };
  for (int width = 0; width <= 64; ++width) {
    for (const uint32_t count : {256U, 255U, 17U}) add(random->Integers(width, count));
  }
  for (int64_t count = 1; count <= 256; ++count) {
    // One element decides the width.
    std::vector<int64_t> integers = random->Integers(1, static_cast<size_t>(count));
    integers[static_cast<size_t>(random->Between(0, count - 1))] =
        random->Integer(static_cast<int>(random->Between(2, 64)));
    add(integers);
  }
  return blocks;
}

std::vector<uint8_t> WidthsOf(const Blocks& blocks) {
  std::vector<uint8_t> widths;
  for (size_t b = 0; b < blocks.counts.size(); ++b) {
    widths.push_back(static_cast<uint8_t>(exact::Width(blocks.at(b))));
  }
  return widths;
}

std::vector<uint64_t> OffsetsOf(const std::vector<uint8_t>& widths,
                                const std::vector<uint32_t>& counts) {
  std::vector<uint64_t> offsets = {0};
  for (size_t b = 0; b < widths.size(); ++b) {
    offsets.push_back(offsets.back() + exact::PackedBytes(widths[b], counts[b]));
  }
  return offsets;
}

// The same blocks, packed by common/exact.
struct Packed {
  explicit Packed(const Blocks& blocks)
      : widths(WidthsOf(blocks)),
        offsets(OffsetsOf(widths.values(), blocks.counts)),
        counts(blocks.counts),
        bytes(offsets[widths.size()]) {
    for (size_t b = 0; b < widths.size(); ++b) {
      exact::Pack(blocks.at(b), widths[b], &bytes.data()[offsets[b]]);
    }
  }
  [[nodiscard]] PackedBlocks view() {
    return {static_cast<int64_t>(widths.size()), counts.data(), widths.data(), offsets.data()};
  }

  GuardedArray<uint8_t> widths;
  GuardedArray<uint64_t> offsets;
  GuardedArray<uint32_t> counts;
  GuardedArray<uint8_t> bytes;
};

}  // namespace

TEST_CASE("Quantize kernel: every unit, and short last blocks of every count") {
  RandomValues random(41);
  TensorCase tensor = AnyTensor(&random, 160 * kBlockElements - 100, 0, 8);
  for (int b = 0; b < 160; ++b) tensor.unit_exponents[static_cast<size_t>(b)] = b - 40;
  CheckSums({tensor}, &random);
  for (size_t count = 1; count <= kBlockElements; ++count) {
    CheckSums({AnyTensor(&random, count, 0, 1)}, &random);
  }
}

TEST_CASE("Quantize kernel: any bits, scales and numbers of shards") {
  RandomValues random(42);
  for (uint32_t shards = 1; shards <= 64; ++shards) {
    const auto log2_scale = static_cast<int>(random.Between(-126, 64));
    const auto elements = static_cast<size_t>(random.Between(1, 10 * kBlockElements));
    INFO(shards << " shards, scale 2^" << log2_scale << ", " << elements << " elements");
    CheckSums({AnyTensor(&random, elements, log2_scale, shards)}, &random);
  }
  CheckSums({AnyTensor(&random, 700, 0, 0xffffffff)}, &random);
}

TEST_CASE("Quantize kernel: shards add to the same sums, in any order") {
  RandomValues random(43);
  for (int round = 0; round < 10; ++round) {
    std::vector<TensorCase> shards;
    for (int shard = 0; shard < 3; ++shard) {
      shards.push_back(AnyTensor(&random, 1000, 0, 3));
      shards.back().unit_exponents = shards[0].unit_exponents;
      shards.back().precision_bits = shards[0].precision_bits;
    }
    CheckSums(shards, &random);
    std::swap(shards[0], shards[2]);
    CheckSums(shards, &random);
  }
}

TEST_CASE("Quantize kernel: the flag names the first refused element and why") {
  RandomValues random(44);
  TensorCase tensor = AnyTensor(&random, 5 * kBlockElements, 0, 1);
  for (float& g : tensor.gradient) g = 1.0F;
  for (int& unit : tensor.unit_exponents) unit = 0;
  const auto flag_of = [](const TensorCase& t) {
    GuardedArray<int64_t> sums(std::vector<int64_t>(t.gradient.size()));
    GuardedArray<uint64_t> flag(std::vector{kNothingRefused});
    AddOnDevice(t, &sums, &flag);
    return flag[0];
  };
  REQUIRE(RefusedKind(flag_of(tensor)) == FlagKind::kNone);
  tensor.gradient[1200] = 0x1p62F;
  REQUIRE(flag_of(tensor) == 1200 * 4 + 2);
  REQUIRE(RefusedKind(flag_of(tensor)) == FlagKind::kTooLarge);
  tensor.gradient[900] = -std::numeric_limits<float>::infinity();
  tensor.gradient[901] = 0x1p62F;
  REQUIRE(flag_of(tensor) == 900 * 4 + 1);
  REQUIRE(RefusedKind(flag_of(tensor)) == FlagKind::kNotFinite);
}

TEST_CASE("Pack kernels: widths, offsets and bytes are those of the codec") {
  RandomValues random(45);
  const Blocks blocks = EveryWidthAndCount(&random);
  Packed expected(blocks);
  GuardedArray<int64_t> integers(blocks.integers);
  for (const Schedule schedule : kSchedules) {
    testing::SetSchedule(schedule);
    GuardedArray<uint8_t> widths(expected.widths.size());
    GuardedArray<uint64_t> offsets(expected.offsets.size());
    GuardedArray<uint8_t> bytes(expected.bytes.size());
    REQUIRE(LaunchWidths(integers.data(), expected.counts.data(), blocks.size(), widths.data(),
                         nullptr) == cudaSuccess);
    REQUIRE(widths.FirstDifference(expected.widths.values()) == -1);
    REQUIRE(LaunchOffsets(widths.data(), expected.counts.data(), blocks.size(), offsets.data(),
                          nullptr) == cudaSuccess);
    REQUIRE(offsets.FirstDifference(expected.offsets.values()) == -1);
    REQUIRE(LaunchPack(expected.view(), integers.data(), bytes.data(), nullptr) == cudaSuccess);
    REQUIRE(bytes.FirstDifference(expected.bytes.values()) == -1);
    REQUIRE((widths.intact() && offsets.intact() && bytes.intact()));
    testing::SetSchedule(Schedule::kForward);
  }
}

TEST_CASE("Pack kernels: unpacking gives the integers again, and leaves the padding") {
  RandomValues random(46);
  const Blocks blocks = EveryWidthAndCount(&random);
  Packed packed(blocks);
  std::vector<int64_t> before(blocks.integers.size());
  for (int64_t& integer : before) integer = random.Integer(64);
  GuardedArray<int64_t> unpacked(before);
  REQUIRE(LaunchUnpack(packed.view(), packed.bytes.data(), unpacked.data(), nullptr) ==
          cudaSuccess);
  std::vector<int64_t> expected = before;
  for (size_t b = 0; b < blocks.counts.size(); ++b) {
    const uint8_t* const from = &packed.bytes.data()[packed.offsets[b]];
    const size_t first = b * kBlockElements;
    exact::Unpack(from, packed.widths[b], {&expected[first], blocks.counts[b]});
  }
  REQUIRE(unpacked.FirstDifference(expected) == -1);
  REQUIRE(unpacked.intact());
}

TEST_CASE("Pack kernels: offsets of more blocks than one pass takes") {
  RandomValues random(47);
  for (const size_t blocks : {1, 3, 4095, 4096, 4097, 10001}) {
    GuardedArray<uint8_t> widths(blocks);
    GuardedArray<uint32_t> counts(blocks);
    for (size_t b = 0; b < blocks; ++b) {
      widths[b] = static_cast<uint8_t>(2 * random.Between(0, 32));
      counts[b] = static_cast<uint32_t>(random.Between(1, 256));
    }
    for (const Schedule schedule : kSchedules) {
      testing::SetSchedule(schedule);
      GuardedArray<uint64_t> offsets(blocks + 1);
      REQUIRE(LaunchOffsets(widths.data(), counts.data(), static_cast<int64_t>(blocks),
                            offsets.data(), nullptr) == cudaSuccess);
      testing::SetSchedule(Schedule::kForward);
      REQUIRE(offsets.FirstDifference(OffsetsOf(widths.values(), counts.values())) == -1);
      REQUIRE(offsets.intact());
    }
  }
}

}  // namespace ringmaster::cuda
