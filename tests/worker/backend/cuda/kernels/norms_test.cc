// Norms on the block emulator against the CPU's: every bit of a sum, which a step would round off.
#include "worker/backend/cuda/kernels/norms.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/exact/quantize.h"
#include "common/graph/update/optimizer.h"
#include "common/numeric/arithmetic.h"
#include "tests/support/optimizers.h"
#include "tests/support/whole_update.h"
#include "tests/worker/backend/cuda/emulation/block_emulator.h"
#include "tests/worker/backend/cuda/emulation/guarded_array.h"

namespace ringmaster::cuda {
namespace {

using exact::kBlockElements;
using testing::GuardedArray;
using testing::Schedule;

constexpr int kNormPrecision = 21;

// Short blocks of every kind, tensors of a whole run, of one block more, and of several runs; none
// begins where a run of the whole arena would.
exact::BlockLayout NormLayout() {
  const std::vector<exact::BlockLayout::Tensor> tensors = {
      {2, 1}, {0, 32 * 256}, {1, 32 * 256 + 1}, {4, 700}, {5, 255}, {3, 40'000}};
  auto layout = exact::BlockLayout::Create(tensors);
  REQUIRE(layout.ok());
  return *std::move(layout);
}

// What an update reads, on the host.
struct NormModel {
  NormModel() {
    const size_t n = layout.arena_elements();
    totals.resize(n);
    reduced.resize(n);
    parameters.resize(n);
    slots.assign(2, std::vector<float>(n));
    std::normal_distribution<float> normal;
    for (size_t b = 0; b < layout.block_count(); ++b) {
      const exact::Block& block = layout.blocks()[b];
      counts.push_back(block.count);
      tensors.push_back(block.tensor);
      exponents.push_back(static_cast<int16_t>(static_cast<int>(random() % 12) - 6));
      for (size_t i = b * kBlockElements; i < b * kBlockElements + block.count; ++i) {
        totals[i] = static_cast<int64_t>(random()) >> (36 + random() % 8);
        parameters[i] = std::ldexp(normal(random), static_cast<int>(random() % 20) - 10);
        slots[0][i] = normal(random);
        slots[1][i] = std::abs(normal(random));
      }
      exact::Dequantize({&totals[b * kBlockElements], block.count}, exponents[b] - kNormPrecision,
                        &reduced[b * kBlockElements]);
    }
  }

  [[nodiscard]] testing::WholeModel whole() {
    return {layout, parameters, {slots.begin(), slots.end()}, reduced};
  }
  // In arena order.
  [[nodiscard]] std::vector<double> SquaresOf(const std::vector<float>& arena, float limit) const {
    std::vector<double> squares;
    for (const exact::TensorRange& tensor : layout.tensors()) {
      squares.push_back(testing::SquaresOfTensor(layout, tensor, [&](size_t at, size_t n) {
        return graph::SquaresOf(std::span(arena).subspan(at, n), {.limit = limit});
      }));
    }
    return squares;
  }

  std::mt19937_64 random{3};
  const exact::BlockLayout layout = NormLayout();
  std::vector<uint32_t> counts, tensors;
  std::vector<int16_t> exponents;
  std::vector<int64_t> totals;
  std::vector<float> reduced, parameters;
  std::vector<std::vector<float>> slots;
};

// The runs of all tensors, and those of each, in arena order.
struct Runs {
  explicit Runs(const exact::BlockLayout& layout) {
    for (const exact::TensorRange& tensor : layout.tensors()) {
      const auto blocks = static_cast<uint32_t>(tensor.block_count);
      of_tensor.push_back({static_cast<uint32_t>(all.size()), (blocks + 31) / 32});
      for (uint32_t done = 0; done < blocks; done += 32) {
        all.push_back({tensor.tensor, static_cast<uint32_t>(tensor.first_block) + done,
                       std::min(blocks - done, 32U)});
      }
    }
  }
  std::vector<BlockRun> all;
  std::vector<TensorRuns> of_tensor;
};

// The same in the memory of the emulator's GPU.
struct NormsOnDevice {
  explicit NormsOnDevice(const NormModel& model, const std::vector<graph::NormFactors>& of = {})
      : runs(Runs(model.layout).all),
        of_tensor(Runs(model.layout).of_tensor),
        sums(runs.size()),
        squares(of_tensor.size()),
        totals(model.totals),
        exponents(model.exponents),
        counts(model.counts),
        tensors(model.tensors),
        parameters(model.parameters),
        first_slot(model.slots[0]),
        second_slot(model.slots[1]),
        factors(of) {}

  UpdateArrays arrays() {
    UpdateArrays arrays{.totals = totals.data(),
                        .counts = counts.data(),
                        .exponents = exponents.data(),
                        .parameters = parameters.data(),
                        .factors = factors.data(),
                        .tensors = tensors.data()};
    arrays.slots[0] = first_slot.data();
    arrays.slots[1] = second_slot.data();
    return arrays;
  }
  RunSums run_sums() { return {runs.data(), static_cast<int64_t>(runs.size()), sums.data()}; }

  // In arena order, of what the runs' sums are.
  std::vector<double> TensorSquares() {
    REQUIRE(LaunchTensorSquares(of_tensor.data(), static_cast<int64_t>(of_tensor.size()),
                                sums.data(), squares.data(), nullptr) == cudaSuccess);
    CHECK(sums.intact());
    CHECK(squares.intact());
    return squares.values();
  }

  GuardedArray<BlockRun> runs;
  GuardedArray<TensorRuns> of_tensor;
  GuardedArray<double> sums, squares;
  GuardedArray<int64_t> totals;
  GuardedArray<int16_t> exponents;
  GuardedArray<uint32_t> counts, tensors;
  GuardedArray<float> parameters, first_slot, second_slot;
  GuardedArray<graph::NormFactors> factors;
};

void InBothSchedules(const auto& body) {
  for (const Schedule schedule : {Schedule::kForward, Schedule::kBackward}) {
    testing::SetSchedule(schedule);
    body();
  }
  testing::SetSchedule(Schedule::kForward);
}

// Of every magnitude, so that the order of a sum shows.
std::vector<double> DrawSquares(size_t count, std::mt19937_64& random) {
  std::vector<double> squares(count);
  std::uniform_real_distribution<double> uniform;
  for (double& square : squares) {
    square = std::ldexp(uniform(random), static_cast<int>(random() % 40) - 20);
  }
  return squares;
}

double PairwiseSumOf(const std::vector<double>& values) {
  return PairwiseSum(0, values.size(), [&](size_t i) { return values[i]; });
}

}  // namespace

TEST_CASE("CUDA norms: squares of gradients and of weights have the CPU's bits") {
  const NormModel model;
  InBothSchedules([&] {
    NormsOnDevice device(model);
    for (const float limit : {0.0F, 0.25F}) {
      INFO("limit " << limit);
      REQUIRE(LaunchGradientSquares(device.arrays(), limit, kNormPrecision, device.run_sums(),
                                    nullptr) == cudaSuccess);
      CHECK(device.TensorSquares() == model.SquaresOf(model.reduced, limit));
    }
    REQUIRE(LaunchWeightSquares(device.arrays(), device.run_sums(), nullptr) == cudaSuccess);
    CHECK(device.TensorSquares() == model.SquaresOf(model.parameters, 0));
  });
}

TEST_CASE("CUDA norms: steps are prepared as on the CPU, and their squares have its bits") {
  v1::TensorUpdate each;
  each.set_learning_rate(1);
  each.set_weight_decay(0.125);
  each.set_adapts(true);
  const auto lamb = graph::MakeOptimizer(
      {.optimizer = testing::Lamb(), .tensors = std::vector<v1::TensorUpdate>(6, each)});
  REQUIRE(lamb.ok());
  std::vector<graph::NormFactors> factors;
  for (size_t t = 0; t < 6; ++t) factors.push_back({.gradient = 1 / static_cast<double>(t + 1)});
  constexpr uint64_t kUpdate = 3;
  InBothSchedules([&] {
    NormModel model;
    NormsOnDevice device(model, factors);
    REQUIRE(LaunchPrepare((*lamb)->step(kUpdate, 0), device.arrays(), kNormPrecision,
                          device.run_sums(), nullptr) == cudaSuccess);
    std::vector<double> squares;
    const testing::WholeModel whole = model.whole();
    for (const exact::TensorRange& tensor : model.layout.tensors()) {
      const graph::TensorStep step = (*lamb)->step(kUpdate, tensor.tensor, factors[tensor.tensor]);
      graph::PrepareRange(step, whole.gradients.subspan(tensor.offset(), tensor.elements),
                          whole.SlotsOf(tensor.offset(), tensor.elements));
      squares.push_back(testing::StepSquaresOfTensor(step, whole, tensor));
    }
    CHECK(device.TensorSquares() == squares);
    CHECK(device.first_slot.FirstDifference(model.slots[0]) == -1);
    CHECK(device.second_slot.FirstDifference(model.slots[1]) == -1);
    CHECK(device.parameters.FirstDifference(model.parameters) == -1);
    CHECK(device.first_slot.intact());
    CHECK(device.second_slot.intact());
  });
}

TEST_CASE("CUDA norms: a rule that does not adapt by its step has none to prepare") {
  NormModel model;
  NormsOnDevice device(model, std::vector<graph::NormFactors>(6));
  std::fill_n(device.sums.data(), device.sums.size(), 7.0);
  const auto lars = graph::MakeOptimizer({.optimizer = testing::Lars()});
  REQUIRE(LaunchPrepare((*lars)->step(1, 0), device.arrays(), kNormPrecision, device.run_sums(),
                        nullptr) == cudaSuccess);
  CHECK(device.sums.values() == std::vector<double>(device.sums.size(), 7.0));
  CHECK(device.first_slot.FirstDifference(model.slots[0]) == -1);
}

TEST_CASE("CUDA norms: runs are added up in the one tree, however many a tensor has") {
  std::mt19937_64 random(5);
  const std::vector<uint32_t> counts = {1, 2, 3, 255, 256, 257, 513, 1'024, 1'300, 1'793};
  std::vector<double> sums;
  std::vector<double> expected;
  std::vector<TensorRuns> tensors;
  for (const uint32_t count : counts) {
    const std::vector<double> own = DrawSquares(count, random);
    tensors.push_back({static_cast<uint32_t>(sums.size()), count});
    sums.insert(sums.end(), own.begin(), own.end());
    expected.push_back(PairwiseSumOf(own));
  }
  InBothSchedules([&] {
    GuardedArray<double> on_device(sums);
    GuardedArray<TensorRuns> runs(tensors);
    GuardedArray<double> squares(counts.size());
    REQUIRE(LaunchTensorSquares(runs.data(), static_cast<int64_t>(counts.size()), on_device.data(),
                                squares.data(), nullptr) == cudaSuccess);
    CHECK(squares.values() == expected);
    CHECK(squares.intact());
  });
}

namespace {

// Norms of all gradients below and above those that are drawn.
std::vector<v1::Optimizer> OptimizersWithNorms() {
  std::vector<v1::Optimizer> all = {testing::Lars(), testing::Lamb()};
  for (const v1::Optimizer& rule : {testing::Adam(), testing::Lars(), testing::Lamb()}) {
    for (const double norm : {1e3, 1e9}) {
      all.push_back(rule);
      all.back().mutable_clip()->set_global_norm(norm);
    }
    all.push_back(rule);
    all.back().mutable_clip()->set_tensor_norm(1);
  }
  return all;
}

// Some adapt, some decay, some add; what is not there is 0.
graph::UpdateOptions NormsOf(const v1::Optimizer& optimizer, size_t tensors) {
  graph::UpdateOptions options{.optimizer = optimizer, .tensors = {}};
  for (size_t t = 0; t < tensors; ++t) {
    v1::TensorUpdate& each = options.tensors.emplace_back();
    each.set_learning_rate(1);
    each.set_adapts(t % 3 != 0);
    each.set_weight_decay(t % 2 == 0 ? 0.1 : 0);
    each.set_adds(t % 7 == 3);
  }
  return options;
}

}  // namespace

TEST_CASE("CUDA norms: the factors of every tensor are the optimizer's, bit for bit") {
  std::mt19937_64 random(11);
  for (const size_t count : {size_t{1}, size_t{6}, size_t{700}}) {
    std::vector<double> gradients = DrawSquares(count, random);
    std::vector<double> weights = DrawSquares(count, random);
    const std::vector<double> steps = DrawSquares(count, random);
    if (count > 5) gradients[4] = weights[5] = 0;
    std::vector<graph::TensorSquares> squares;
    for (size_t t = 0; t < count; ++t) squares.push_back({gradients[t], weights[t], steps[t]});
    for (const v1::Optimizer& each : OptimizersWithNorms()) {
      INFO(count << " tensors, " << each.ShortDebugString());
      const auto optimizer = graph::MakeOptimizer(NormsOf(each, count));
      REQUIRE(optimizer.ok());
      std::vector<graph::TensorNorms> norms;
      for (uint32_t t = 0; t < count; ++t) norms.push_back((*optimizer)->NormsOf(t));
      std::vector<double> expected;
      for (const graph::NormFactors& of : (*optimizer)->FactorsOf(squares)) {
        expected.insert(expected.end(), {of.gradient, of.rate});
      }
      InBothSchedules([&] {
        GuardedArray<graph::TensorNorms> tensors(norms);
        GuardedArray<double> first(gradients), second(weights), third(steps);
        GuardedArray<graph::NormFactors> factors(count);
        REQUIRE(LaunchFactors((*optimizer)->norms(), tensors.data(), static_cast<int64_t>(count),
                              {first.data(), second.data(), third.data()}, factors.data(),
                              nullptr) == cudaSuccess);
        std::vector<double> found;
        for (size_t t = 0; t < count; ++t) {
          found.insert(found.end(), {factors[t].gradient, factors[t].rate});
        }
        CHECK(found == expected);
        CHECK(factors.intact());
      });
    }
  }
}

}  // namespace ringmaster::cuda
