#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>

#include "common/exact/quantize.h"
#include "common/exact/units.h"
#include "tests/common/exact/random_values.h"
#include "tests/common/exact/reference_case.h"

namespace ringmaster::exact {
namespace {

enum class Gradients { kUsual, kAny, kGrowth, kZero };

BlockLayout RandomLayout(RandomValues* random) {
  std::vector<BlockLayout::Tensor> tensors(static_cast<size_t>(random->Between(1, 4)));
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    tensors[tensors.size() - 1 - i] = {i, static_cast<uint64_t>(random->Between(1, 700))};
  }
  return *BlockLayout::Create(tensors);
}

float RandomGradient(RandomValues* random, Gradients values, int level) {
  switch (values) {
    case Gradients::kUsual:
      return random->Near(level + static_cast<int>(random->Between(-14, 1)));
    case Gradients::kAny:
      return random->Between(0, 99) == 0
                 ? random->AnyBits()
                 : random->Near(level + static_cast<int>(random->Between(-150, 5)));
    case Gradients::kGrowth:
      return random->Near(level + static_cast<int>(random->Between(0, 60)));
    case Gradients::kZero:
      return random->Between(0, 1) == 0 ? 0.0F : -0.0F;
  }
  return 0.0F;
}

// The exact sum as one worker with every shard makes it.
std::string SumAll(const ReferenceCase& reference_case, Units* units) {
  const BlockLayout& layout = *reference_case.layout;
  const auto shards = static_cast<uint32_t>(reference_case.gradients.size());
  const float scale = std::ldexp(1.0F, reference_case.gradient_scale_exponent);
  std::vector<int64_t> sums(layout.arena_elements());
  std::vector<int64_t> flags(shards);
  for (uint32_t shard = 0; shard < shards; ++shard) {
    for (size_t b = 0; b < layout.block_count(); ++b) {
      const std::span<const float> gradient(
          reference_case.gradients[shard].data() + b * kBlockElements, layout.blocks()[b].count);
      const FlagKind kind = QuantizeAdd(gradient, units->unit_exponent(b), scale, shards,
                                        sums.data() + b * kBlockElements);
      const int64_t code = EncodeFlag(kind, layout.blocks()[b].tensor);
      if (code != 0 && (flags[shard] == 0 || code >> 2 < flags[shard] >> 2)) flags[shard] = code;
    }
  }
  std::vector<float> reduced(layout.arena_elements());
  for (size_t b = 0; b < layout.block_count(); ++b) {
    Dequantize({sums.data() + b * kBlockElements, layout.blocks()[b].count},
               units->unit_exponent(b), reduced.data() + b * kBlockElements);
  }
  units->Advance(reduced);
  return Text({&layout, flags, sums, reduced, units->exponents()});
}

void CheckSteps(RandomValues* random, Gradients values) {
  const BlockLayout layout = RandomLayout(random);
  Units units(&layout, static_cast<int>(random->Between(8, 24)));
  const auto shards = static_cast<size_t>(random->Between(1, 9));
  int level = static_cast<int>(random->Between(-50, 10));
  for (int step = 0; step < 3; ++step) {
    const auto scale = static_cast<int>(random->Between(0, 1) * random->Between(-20, -1));
    ReferenceCase reference_case{&layout, &units, scale};
    reference_case.gradients.assign(shards, std::vector<float>(layout.arena_elements()));
    for (const TensorRange& tensor : layout.tensors()) {
      for (auto& gradient : reference_case.gradients) {
        for (size_t i = 0; i < tensor.elements; ++i) {
          gradient[tensor.offset() + i] = RandomGradient(random, values, level - scale);
        }
      }
    }
    const std::string dump = Dump(reference_case);
    const StatusOr<std::string> expected = AskReference(dump);
    REQUIRE(expected.ok());
    REQUIRE(SumAll(reference_case, &units) == *expected);
    level += static_cast<int>(random->Between(-30, 30));
  }
}

TEST_CASE("Reference: sums, flags, reduced values and units equal Python's integers") {
  RandomValues random(31);
  for (int round = 0; round < 6; ++round) CheckSteps(&random, Gradients::kUsual);
  for (int round = 0; round < 6; ++round) CheckSteps(&random, Gradients::kAny);
  for (int round = 0; round < 3; ++round) CheckSteps(&random, Gradients::kGrowth);
  CheckSteps(&random, Gradients::kZero);
}

TEST_CASE("Reference: what the script refuses is an error") {
  const StatusOr<std::string> answer = AskReference("precision 21\nshards 1\nnonsense\n");
  REQUIRE_FALSE(answer.ok());
  REQUIRE_THAT(Message(answer.status()), Catch::Contains("unknown record: nonsense"));
}

}  // namespace
}  // namespace ringmaster::exact
