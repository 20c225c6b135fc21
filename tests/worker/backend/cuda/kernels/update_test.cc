// Updates on the block emulator against what the CPU does: exact::Dequantize, the optimizer, and
// the CPU backend's roundings to 16 bits.
#include "worker/backend/cuda/kernels/state.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>
#include <random>

#include "common/exact/block_layout.h"
#include "common/exact/quantize.h"
#include "common/exact/units.h"
#include "common/graph/update/optimizer.h"
#include "tests/support/optimizers.h"
#include "tests/worker/backend/cuda/emulation/block_emulator.h"
#include "tests/worker/backend/cuda/emulation/guarded_memory.h"
#include "worker/backend/cpu/storage.h"

namespace ringmaster::cuda {
namespace {

using exact::kBlockElements;
using testing::Adam;
using testing::GuardedMemory;
using testing::Sgd;

constexpr int kUpdatePrecisionBits = 21;
constexpr int kSmallestExponent = kUpdatePrecisionBits + exact::kSmallestUnitExponent;

// The last epsilon is zero in float32: an element that never had a gradient becomes NaN, its
// padding does not.
std::vector<v1::Optimizer> Optimizers() {
  std::vector<v1::Optimizer> all = testing::EveryRule();
  all.insert(all.end(), {Sgd(0.1, 0.9, false), Adam(1e-60)});
  // Everything that is around a rule, too.
  for (size_t i = 0, rules = all.size(); i < rules; ++i) {
    v1::Optimizer around = all[i];
    around.mutable_clip()->set_value(0.5);
    around.mutable_ema()->set_decay(0.9);
    around.mutable_ema()->set_start_update(i % 3);
    around.mutable_weight_decay()->set_kind(i % 2 == 0 ? v1::DECAY_KIND_L2
                                                       : v1::DECAY_KIND_DECOUPLED);
    all.push_back(around);
  }
  return all;
}

// Of every tensor, so that all have one step.
graph::UpdateOptions Decaying(const v1::Optimizer& optimizer) {
  v1::TensorUpdate each;
  each.set_learning_rate(0.75);
  if (optimizer.has_weight_decay()) each.set_weight_decay(0.125);
  return {.optimizer = optimizer, .tensors = std::vector(6, each)};
}

// Tensors with a short last block of every kind, and whole blocks before it.
exact::BlockLayout UpdateLayout() {
  const std::vector<exact::BlockLayout::Tensor> tensors = {{2, 1},   {0, 256}, {1, 3},
                                                           {4, 700}, {5, 255}, {3, 514}};
  auto layout = exact::BlockLayout::Create(tensors);
  REQUIRE(layout.ok());
  return *std::move(layout);
}

std::vector<uint32_t> AllOf(const exact::BlockLayout& layout) {
  std::vector<uint32_t> all(layout.block_count());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Equal bits, or both NaN, which a GPU writes in its own way.
template <typename T>
bool Same(const T& a, const T& b) {
  if constexpr (std::is_constructible_v<T, float>) {
    const auto x = static_cast<float>(a);
    const auto y = static_cast<float>(b);
    if (x != x && y != y) return true;
  }
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <typename T>
class Array {
 public:
  explicit Array(const std::vector<T>& values)
      : memory_(values.size() * sizeof(T)), size_(values.size()) {
    std::memcpy(memory_.data(), values.data(), values.size() * sizeof(T));
  }
  [[nodiscard]] T* data() { return reinterpret_cast<T*>(memory_.data()); }
  [[nodiscard]] bool Has(const std::vector<T>& values) {
    return std::ranges::equal(std::span(data(), size_), values, Same<T>) && memory_.intact();
  }

 private:
  GuardedMemory memory_;
  const size_t size_;
};

// The arena of one job, as the CPU updates it.
struct Model {
  explicit Model(const exact::BlockLayout& blocks, const v1::Optimizer& options)
      : layout(blocks), optimizer(*graph::MakeOptimizer(Decaying(options))) {
    const size_t n = layout.arena_elements();
    totals.resize(n);
    parameters.resize(n);
    slots.assign(optimizer->slot_names().size(), std::vector<float>(n));
    bfloat16.resize(n);
    float16.resize(n);
    exponents.resize(layout.block_count());
    EachElement([&](size_t i, size_t) { parameters[i] = AnyFloat(); });
  }

  template <typename Body>
  void EachElement(Body body) {
    for (size_t b = 0; b < layout.block_count(); ++b) {
      for (size_t i = 0; i < layout.blocks()[b].count; ++i) body(b * kBlockElements + i, b);
    }
  }

  // Of every exponent up to 2^40, zeros and subnormals too.
  float AnyFloat() {
    uint32_t bits = static_cast<uint32_t>(random()) & 0x807fffff;
    const uint32_t exponent = static_cast<uint32_t>(random() % 168);
    return std::bit_cast<float>(random() % 16 == 0 ? 0 : bits | exponent << 23);
  }

  // Integers of every length, and every unit: the largest near what the limits of quantizing allow.
  void DrawTotals() {
    for (auto& exponent : exponents) {
      exponent = static_cast<int16_t>(kSmallestExponent + random() % 60);
    }
    EachElement([&](size_t i, size_t) {
      const auto shift = random() % 64;
      totals[i] = static_cast<int64_t>(random()) >> shift;
      if (shift == 63) totals[i] = 0;
    });
  }

  void Apply(uint64_t update) {
    std::vector<float> reduced(layout.arena_elements());
    for (size_t b = 0; b < layout.block_count(); ++b) {
      const std::span<const int64_t> q(&totals[b * kBlockElements], layout.blocks()[b].count);
      exact::Dequantize(q, exponents[b] - kUpdatePrecisionBits, &reduced[b * kBlockElements]);
    }
    std::ranges::fill(exponents, -127);
    EachElement([&](size_t i, size_t b) {
      const auto biased = static_cast<int>(std::bit_cast<uint32_t>(reduced[i]) >> 23 & 0xff);
      exponents[b] = std::max(exponents[b], static_cast<int16_t>(biased - 127));
    });
    for (size_t b = 0; b < layout.block_count(); ++b) {
      const size_t at = b * kBlockElements;
      const size_t count = layout.blocks()[b].count;
      std::vector<std::span<float>> ranges;
      for (auto& slot : slots) ranges.push_back(std::span(slot).subspan(at, count));
      graph::UpdateRange(optimizer->step(update, layout.blocks()[b].tensor),
                         std::span(parameters).subspan(at, count),
                         std::span<const float>(reduced).subspan(at, count), ranges);
    }
    EachElement([&](size_t i, size_t) {
      bfloat16[i] = cpu::BFloat16(parameters[i]);
      float16[i] = cpu::Float16(parameters[i]);
    });
  }

  const exact::BlockLayout& layout;
  const std::unique_ptr<graph::Optimizer> optimizer;
  std::mt19937_64 random{1};
  std::vector<int64_t> totals;
  std::vector<float> parameters;
  std::vector<std::vector<float>> slots;
  std::vector<cpu::BFloat16> bfloat16;
  std::vector<cpu::Float16> float16;
  std::vector<int16_t> exponents;
};

// The same in the memory of the emulator's GPU.
struct UpdateOnDevice {
  explicit UpdateOnDevice(const Model& model)
      : totals(model.totals),
        exponents(model.exponents),
        counts(CountsOf(model.layout)),
        parameters(model.parameters),
        bfloat16(model.bfloat16),
        float16(model.float16),
        averages(model.optimizer->averages()) {
    for (const auto& slot : model.slots) slots.push_back(std::make_unique<Array<float>>(slot));
  }
  static std::vector<uint32_t> CountsOf(const exact::BlockLayout& layout) {
    std::vector<uint32_t> counts;
    for (const exact::Block& block : layout.blocks()) counts.push_back(block.count);
    return counts;
  }

  UpdateArrays arrays() {
    UpdateArrays arrays{.totals = totals.data(),
                        .counts = counts.data(),
                        .exponents = exponents.data(),
                        .parameters = parameters.data(),
                        .bfloat16 = reinterpret_cast<__nv_bfloat16*>(bfloat16.data()),
                        .float16 = reinterpret_cast<__half*>(float16.data())};
    const size_t rule_slots = slots.size() - (averages ? 1 : 0);
    for (size_t s = 0; s < rule_slots; ++s) arrays.slots[s] = slots[s]->data();
    if (averages) arrays.average = slots.back()->data();
    return arrays;
  }

  void Take(const Model& model) {
    std::ranges::copy(model.totals, totals.data());
    std::ranges::copy(model.exponents, exponents.data());
  }

  cudaError_t Apply(const graph::TensorStep& step, const std::vector<uint32_t>& blocks) {
    Array<uint32_t> list(blocks);
    return LaunchUpdate(step, arrays(), {list.data(), static_cast<int64_t>(blocks.size())},
                        kUpdatePrecisionBits, nullptr);
  }

  bool Is(const Model& model) {
    bool same = totals.Has(model.totals) && exponents.Has(model.exponents) &&
                parameters.Has(model.parameters) && bfloat16.Has(model.bfloat16) &&
                float16.Has(model.float16);
    for (size_t s = 0; s < slots.size(); ++s) same = same && slots[s]->Has(model.slots[s]);
    return same;
  }

  Array<int64_t> totals;
  Array<int16_t> exponents;
  Array<uint32_t> counts;
  Array<float> parameters;
  std::vector<std::unique_ptr<Array<float>>> slots;
  Array<cpu::BFloat16> bfloat16;
  Array<cpu::Float16> float16;
  const bool averages;  // the last slot is the average
};

}  // namespace

TEST_CASE("CUDA update: the CPU's bits for every optimizer, update after update") {
  const exact::BlockLayout layout = UpdateLayout();
  for (const auto schedule : {testing::Schedule::kForward, testing::Schedule::kBackward}) {
    testing::SetSchedule(schedule);
    for (const v1::Optimizer& options : Optimizers()) {
      Model model(layout, options);
      UpdateOnDevice device(model);
      for (uint64_t update = 1; update <= 6; ++update) {
        INFO(options.ShortDebugString() << " update " << update);
        model.DrawTotals();
        device.Take(model);
        model.Apply(update);
        REQUIRE(device.Apply(model.optimizer->step(update, 0), AllOf(layout)) == cudaSuccess);
        CHECK(device.Is(model));
      }
    }
  }
  testing::SetSchedule(testing::Schedule::kForward);
}

TEST_CASE("CUDA update: lists of blocks give what the whole arena gives, and touch nothing else") {
  const exact::BlockLayout layout = UpdateLayout();
  for (const v1::Optimizer& options : Optimizers()) {
    Model model(layout, options);
    UpdateOnDevice device(model);
    model.DrawTotals();
    device.Take(model);
    const graph::TensorStep step = model.optimizer->step(1, 0);
    // Every third block from 0 on, from 1 on, from 2 on.
    for (uint32_t first = 0; first < 3; ++first) {
      std::vector<uint32_t> some;
      for (uint32_t b = first; b < layout.block_count(); b += 3) some.push_back(b);
      REQUIRE(device.Apply(step, some) == cudaSuccess);
    }
    model.Apply(1);
    CHECK(device.Is(model));
  }
}

TEST_CASE("CUDA update: copies that nobody reads are not written") {
  const exact::BlockLayout layout = UpdateLayout();
  Model model(layout, Sgd(0.1, 0.9, false));
  UpdateOnDevice device(model);
  const auto none = model.float16;
  model.DrawTotals();
  device.Take(model);
  model.Apply(1);
  UpdateArrays arrays = device.arrays();
  arrays.float16 = nullptr;
  Array<uint32_t> list(AllOf(layout));
  REQUIRE(LaunchUpdate(model.optimizer->step(1, 0), arrays,
                       {list.data(), static_cast<int64_t>(layout.block_count())},
                       kUpdatePrecisionBits, nullptr) == cudaSuccess);
  CHECK(device.bfloat16.Has(model.bfloat16));
  CHECK(device.float16.Has(none));
}

}  // namespace ringmaster::cuda
