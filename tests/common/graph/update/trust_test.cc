// LARS and LAMB: ratios of norms, over whole models of a few tensors, against their papers'
// formulas in doubles.
#include <catch2/catch.hpp>

#include <cmath>
#include <functional>

#include "common/graph/update/optimizer.h"
#include "common/numeric/arithmetic.h"
#include "common/numeric/philox.h"
#include "tests/support/optimizers.h"

namespace ringmaster::graph {
namespace {

constexpr uint64_t kSteps50 = 50;
constexpr double kDecay = 0.1;
constexpr size_t kSizes[] = {300, 5, 40};  // the second one does not adapt, and does not decay

float Value(uint64_t step, size_t tensor, size_t i) {
  const PhiloxStream stream(3, PhiloxStream::Purpose::kSampleData, step, tensor, "");
  return stream.Uniform(i) * 2 - 1;
}

UpdateOptions WithDecay(const v1::Optimizer& optimizer) {
  UpdateOptions options = {.optimizer = optimizer, .tensors = {}};
  for (const bool adapts : {true, false, true}) {
    v1::TensorUpdate tensor;
    tensor.set_learning_rate(1);
    tensor.set_weight_decay(adapts ? kDecay : 0);
    tensor.set_adapts(adapts);
    options.tensors.push_back(tensor);
  }
  return options;
}

struct Tensors {
  std::vector<std::vector<float>> weights;
  std::vector<std::vector<std::vector<float>>> slots;
};

double SquaresOfAll(std::span<const float> values) {
  return LaneSum(values.size(), [&](size_t i) { return double{values[i]} * double{values[i]}; });
}

// As an update of worker/train does it.
Tensors Trained(const Optimizer& optimizer) {
  Tensors tensors;
  for (size_t t = 0; t < std::size(kSizes); ++t) {
    std::vector<float>& weights = tensors.weights.emplace_back(kSizes[t]);
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = Value(0, t, i);
    tensors.slots.emplace_back(optimizer.slot_names().size(), std::vector<float>(kSizes[t]));
  }
  for (uint64_t update = 1; update <= kSteps50; ++update) {
    std::vector<std::vector<float>> gradients;
    std::vector<TensorSquares> squares(std::size(kSizes));
    std::vector<std::vector<std::span<float>>> slots;
    for (size_t t = 0; t < std::size(kSizes); ++t) {
      std::vector<float>& gradient = gradients.emplace_back(kSizes[t]);
      for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = Value(update, t, i);
      slots.emplace_back(tensors.slots[t].begin(), tensors.slots[t].end());
      squares[t] = {.gradient = SquaresOfAll(gradient), .weight = SquaresOfAll(tensors.weights[t])};
      if (!optimizer.norms().needs_steps()) continue;
      const TensorStep step = optimizer.step(update, static_cast<uint32_t>(t));
      PrepareRange(step, gradient, slots[t]);
      for (size_t at = 0; at < gradient.size(); at += 256) {
        const size_t n = std::min<size_t>(256, gradient.size() - at);
        std::vector<std::span<float>> block;
        for (const std::span<float> slot : slots[t]) block.push_back(slot.subspan(at, n));
        squares[t].step +=
            StepSquaresOf(step, std::span<const float>(tensors.weights[t]).subspan(at, n), block);
      }
    }
    const std::vector<NormFactors> factors = optimizer.FactorsOf(squares);
    for (size_t t = 0; t < std::size(kSizes); ++t) {
      UpdateRange(optimizer.step(update, static_cast<uint32_t>(t), factors[t]), tensors.weights[t],
                  gradients[t], slots[t]);
    }
  }
  return tensors;
}

double Norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

std::vector<double> DoublesOf(uint64_t step, size_t tensor) {
  std::vector<double> values(kSizes[tensor]);
  for (size_t i = 0; i < values.size(); ++i) values[i] = double{Value(step, tensor, i)};
  return values;
}

TEST_CASE("Trust: LARS follows its paper's algorithm") {
  const auto lars = MakeOptimizer(WithDecay(testing::Lars()));
  CHECK((*lars)->needs_norms());
  const Tensors trained = Trained(**lars);
  for (size_t t = 0; t < std::size(kSizes); ++t) {
    std::vector<double> w = DoublesOf(0, t), v(kSizes[t]);
    const double decay = t == 1 ? 0 : kDecay;
    for (uint64_t update = 1; update <= kSteps50; ++update) {
      const std::vector<double> g = DoublesOf(update, t);
      const double ratio = t == 1 ? 1 : 0.01 * Norm(w) / (Norm(g) + decay * Norm(w) + 1e-9);
      for (size_t i = 0; i < w.size(); ++i) {
        v[i] = 0.9 * v[i] + 0.5 * ratio * (g[i] + decay * w[i]);
        w[i] -= v[i];
      }
    }
    for (size_t i = 0; i < w.size(); ++i) CHECK(trained.weights[t][i] == Approx(w[i]).margin(2e-5));
  }
}

TEST_CASE("Trust: LAMB follows its paper's algorithm") {
  const auto lamb = MakeOptimizer(WithDecay(testing::Lamb()));
  const Tensors trained = Trained(**lamb);
  for (size_t t = 0; t < std::size(kSizes); ++t) {
    std::vector<double> w = DoublesOf(0, t), m(kSizes[t]), v(kSizes[t]), r(kSizes[t]);
    const double decay = t == 1 ? 0 : kDecay;
    for (uint64_t update = 1; update <= kSteps50; ++update) {
      const std::vector<double> g = DoublesOf(update, t);
      const auto u = static_cast<double>(update);
      for (size_t i = 0; i < w.size(); ++i) {
        m[i] = 0.9 * m[i] + 0.1 * g[i];
        v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
        const double mean = m[i] / (1 - std::pow(0.9, u));
        const double square = v[i] / (1 - std::pow(0.999, u));
        r[i] = mean / (std::sqrt(square) + 1e-6) + decay * w[i];
      }
      const double ratio = t == 1 ? 1 : Norm(w) / Norm(r);
      for (size_t i = 0; i < w.size(); ++i) w[i] -= 0.01 * ratio * r[i];
    }
    for (size_t i = 0; i < w.size(); ++i) CHECK(trained.weights[t][i] == Approx(w[i]).margin(2e-5));
  }
}

TEST_CASE("Trust: the ratio is 1 where a norm is 0, and clipping is in the gradient's") {
  UpdateOptions options = WithDecay(testing::Lars());
  const auto factors = [&](double gradient, double weight) {
    return (*MakeOptimizer(options))
        ->FactorsOf(std::vector<TensorSquares>{{.gradient = gradient, .weight = weight}})[0];
  };
  CHECK(factors(4, 0).rate == 1);
  CHECK(factors(0, 9).rate == 1);
  CHECK(factors(4, 9).rate == 0.01 * 3 / (2 + kDecay * 3 + 1e-9));
  options.optimizer.mutable_clip()->set_tensor_norm(0.5);
  CHECK(factors(4, 9).gradient == 0.25);
  CHECK(factors(4, 9).rate == 0.01 * 3 / (0.5 + kDecay * 3 + 1e-9));
  CHECK((*MakeOptimizer(options))->step(1, 0).around.l2 == 0);  // the rule has it
  CHECK((*MakeOptimizer(options))->step(1, 0).around.decay == 0);
}

TEST_CASE("Clip: a model without parameters has no norm") {
  UpdateOptions options;
  options.optimizer.mutable_sgd()->set_learning_rate(1);
  options.optimizer.mutable_clip()->set_global_norm(1);
  CHECK((*MakeOptimizer(options))->FactorsOf({}).empty());
}

}  // namespace
}  // namespace ringmaster::graph
