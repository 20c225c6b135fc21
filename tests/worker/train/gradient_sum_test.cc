#include "worker/train/gradient_sum.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <thread>

#include "worker/state/state.h"
#include "worker/train/shard_shapes.h"
#include "worker/train/shard_work.h"

namespace ringmaster::worker {
namespace {

constexpr uint64_t kElements[] = {300, 70'000, 10};  // by canonical number

exact::BlockLayout Layout() {
  const std::vector<exact::BlockLayout::Tensor> order = {
      {2, kElements[2]}, {1, kElements[1]}, {0, kElements[0]}};
  return *exact::BlockLayout::Create(order);
}

std::vector<float> Gradient(uint32_t shard, uint32_t tensor) {
  std::vector<float> gradient(kElements[tensor]);
  for (size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = static_cast<float>((shard * 31 + tensor * 7 + i) % 101) * 0x1p-9F - 0.1F;
  }
  return gradient;
}

// Of all blocks, padding 0.
std::vector<int64_t> AllIntegers(const GradientSum& sum) {
  const exact::BlockLayout layout = Layout();
  std::vector<int64_t> all(layout.arena_elements());
  for (size_t b = 0; b < sum.integers().blocks(); ++b) {
    sum.integers().Read(
        b, std::span(all).subspan(b * exact::kBlockElements, layout.blocks()[b].count));
  }
  return all;
}

TEST_CASE("GradientSum: cores add side by side and the integers do not depend on it") {
  const exact::BlockLayout layout = Layout();
  const exact::Units units(&layout, 21);
  GradientSum alone(&layout, &units, v1::REDUCTION_EXACT, 4, 256);
  alone.Begin(4, 1.0F, [](uint32_t) {});
  for (uint32_t shard = 0; shard < 4; ++shard) {
    for (const uint32_t tensor : {2U, 1U, 0U}) {
      REQUIRE(alone.Add(tensor, 0, Gradient(shard, tensor)) == exact::FlagKind::kNone);
    }
  }
  GradientSum shared(&layout, &units, v1::REDUCTION_EXACT, 4, 256);
  shared.Begin(4, 1.0F, [](uint32_t) {});
  {
    std::vector<std::jthread> cores;
    for (const uint32_t shard : {3U, 1U, 2U, 0U}) {
      cores.emplace_back([&shared, shard] {
        for (const uint32_t tensor : {2U, 1U, 0U}) {
          (void)shared.Add(tensor, 0, Gradient(shard, tensor));
        }
      });
    }
  }
  REQUIRE(AllIntegers(shared) == AllIntegers(alone));
}

TEST_CASE("GradientSum: a bucket is ready when the last shard has added its last tensor") {
  const exact::BlockLayout layout = Layout();
  const exact::Units units(&layout, 21);
  GradientSum sum(&layout, &units, v1::REDUCTION_EXACT, 2, 1);  // a bucket for each tensor
  REQUIRE(sum.buckets().size() == 3);
  std::vector<uint32_t> ready;
  sum.Begin(2, 1.0F, [&](uint32_t bucket) { ready.push_back(bucket); });
  (void)sum.Add(2, 0, Gradient(0, 2));
  (void)sum.Add(1, 0, Gradient(0, 1));
  REQUIRE(ready.empty());
  (void)sum.Add(2, 0, Gradient(1, 2));
  REQUIRE(ready == std::vector<uint32_t>{0});
  (void)sum.Add(1, 0, Gradient(1, 1));
  (void)sum.Add(0, 0, Gradient(1, 0));
  (void)sum.Add(0, 0, Gradient(0, 0));
  REQUIRE(ready == std::vector<uint32_t>{0, 1, 2});
}

TEST_CASE("GradientSum: pieces of a gradient add up to what all of it does") {
  const exact::BlockLayout layout = Layout();
  const exact::Units units(&layout, 21);
  GradientSum whole(&layout, &units, v1::REDUCTION_EXACT, 2, 1);
  GradientSum torn(&layout, &units, v1::REDUCTION_EXACT, 2, 1);
  std::vector<uint32_t> ready;
  whole.Begin(1, 1.0F, [](uint32_t) {});
  torn.Begin(1, 1.0F, [&](uint32_t bucket) { ready.push_back(bucket); });
  std::vector<float> gradient = Gradient(0, 1);
  gradient[65'000] = std::numeric_limits<float>::infinity();
  REQUIRE(whole.Add(1, 0, gradient) == exact::FlagKind::kNotFinite);
  const std::span<const float> all(gradient);
  REQUIRE(torn.Add(1, 0, all.first(512)) == exact::FlagKind::kNone);
  REQUIRE(torn.Add(1, 512, all.subspan(512, 64 * 1024)) == exact::FlagKind::kNotFinite);
  REQUIRE(ready.empty());
  REQUIRE(torn.Add(1, 512 + 64 * 1024, all.subspan(512 + 64 * 1024)) == exact::FlagKind::kNone);
  REQUIRE(ready == std::vector<uint32_t>{1});
  REQUIRE(AllIntegers(torn) == AllIntegers(whole));
}

TEST_CASE("GradientSum: a worker without shards is ready at once, with zeros") {
  const exact::BlockLayout layout = Layout();
  const exact::Units units(&layout, 21);
  GradientSum sum(&layout, &units, v1::REDUCTION_EXACT, 2, 1);
  sum.Begin(1, 1.0F, [](uint32_t) {});
  (void)sum.Add(0, 0, Gradient(0, 0));  // a step that was dropped
  std::vector<uint32_t> ready;
  sum.Begin(0, 1.0F, [&](uint32_t bucket) { ready.push_back(bucket); });
  REQUIRE(ready == std::vector<uint32_t>{0, 1, 2});
  REQUIRE(AllIntegers(sum) == std::vector<int64_t>(layout.arena_elements()));
}

TEST_CASE("GradientSum: float32 sums have no units and refuse what is not finite") {
  const exact::BlockLayout layout = Layout();
  const exact::Units units(&layout, 21);
  GradientSum sum(&layout, &units, v1::REDUCTION_FLOAT32, 2, 1 << 20);
  sum.Begin(2, 1.0F, [](uint32_t) {});
  std::vector<float> gradient = Gradient(0, 2);
  REQUIRE(sum.Add(2, 0, gradient) == exact::FlagKind::kNone);
  gradient[3] = -gradient[0] / 0.0F;
  REQUIRE(sum.Add(2, 0, gradient) == exact::FlagKind::kNotFinite);
  REQUIRE(sum.floats(sum.buckets()[0])[3] == Gradient(0, 2)[3]);
  REQUIRE(sum.floats(sum.buckets()[0])[2] == 2 * gradient[2]);
  REQUIRE(sum.integers().blocks() == 0);
}

TEST_CASE("GradientSum: a gradient is multiplied by the inverse of the loss scale, exactly") {
  const exact::BlockLayout layout = Layout();
  const exact::Units units(&layout, 21);
  const auto reduction = GENERATE(v1::REDUCTION_EXACT, v1::REDUCTION_FLOAT32);
  const LossScale scale{.value = 1 << 15};
  const std::vector<float> gradient = Gradient(0, 2);
  std::vector<float> scaled = gradient;
  for (float& x : scaled) x *= static_cast<float>(scale.value);
  GradientSum plain(&layout, &units, reduction, 2, 1 << 20);
  plain.Begin(1, 1.0F, [](uint32_t) {});
  REQUIRE(plain.Add(2, 0, gradient) == exact::FlagKind::kNone);
  GradientSum sum(&layout, &units, reduction, 2, 1 << 20);
  sum.Begin(1, scale.inverse(), [](uint32_t) {});
  REQUIRE(sum.Add(2, 0, scaled) == exact::FlagKind::kNone);
  REQUIRE(AllIntegers(sum) == AllIntegers(plain));
  REQUIRE(std::ranges::equal(sum.floats(sum.buckets()[0]), plain.floats(plain.buckets()[0])));
  scaled[1] = std::numeric_limits<float>::infinity();
  REQUIRE(sum.Add(2, 0, scaled) == exact::FlagKind::kNotFinite);
}

TEST_CASE("KeepFirst: of several flags that of the lowest tensor stays, in any order") {
  using exact::FlagKind;
  exact::DecodedFlag flag;
  const auto keep = [&](FlagKind kind, uint32_t tensor) { KeepFirst(kind, tensor, &flag); };
  keep(FlagKind::kNone, 0);
  REQUIRE(flag.kind == FlagKind::kNone);
  keep(FlagKind::kTooLarge, 4);  // backward yields the last layer first
  keep(FlagKind::kNotFinite, 5);
  REQUIRE(flag.tensor == 4);
  REQUIRE(flag.kind == FlagKind::kTooLarge);
  keep(FlagKind::kNotFinite, 1);
  keep(FlagKind::kNone, 0);
  keep(FlagKind::kTooLarge, 3);
  REQUIRE(flag.tensor == 1);
  REQUIRE(flag.kind == FlagKind::kNotFinite);
}

TEST_CASE("ShardShapes: full and last batches, of training and evaluation") {
  v1::ResultSpec spec;
  spec.set_batch(20);
  spec.set_shards(8);
  spec.mutable_data_use()->set_train_samples(45);  // 20, 20, 5
  spec.mutable_data_use()->set_test_samples(12);
  using graph::Mode;
  const std::set<ShardShape> expected = {{Mode::kTraining, 1},
                                         {Mode::kTraining, 2},
                                         {Mode::kTraining, 3},
                                         {Mode::kInference, 1},
                                         {Mode::kInference, 2}};
  REQUIRE(ShardShapes(spec) == expected);
}

}  // namespace
}  // namespace ringmaster::worker
