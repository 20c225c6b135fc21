#include "common/graph/update/optimizer.h"

#include <catch2/catch.hpp>

#include <cmath>

#include "common/numeric/philox.h"
#include "tests/support/optimizers.h"

namespace ringmaster::graph {
namespace {

using testing::Adam;
using testing::Sgd;

// Parameters, slots and the gradients of a few updates.
struct Training {
  explicit Training(size_t n, size_t slot_count)
      : parameters(n), gradients(n), slots(slot_count, std::vector<float>(n)) {
    for (size_t i = 0; i < n; ++i) parameters[i] = Draw(0, i);
  }

  static float Draw(uint64_t step, size_t i) {
    const PhiloxStream stream(1, PhiloxStream::Purpose::kSampleData, step, 0, "");
    return stream.Uniform(i) * 2 - 1;
  }

  // Update `update` of the elements [begin, end).
  void Apply(const Optimizer& optimizer, uint64_t update, size_t begin, size_t end,
             const NormFactors& factors = {}) {
    for (size_t i = begin; i < end; ++i) gradients[i] = Draw(update, i);
    std::vector<std::span<float>> ranges;
    for (auto& slot : slots) ranges.push_back(std::span(slot).subspan(begin, end - begin));
    UpdateRange(optimizer.step(update, 0, factors),
                std::span(parameters).subspan(begin, end - begin),
                std::span(gradients).subspan(begin, end - begin), ranges);
  }

  std::vector<float> parameters, gradients;
  std::vector<std::vector<float>> slots;
};

std::unique_ptr<Optimizer> Made(const v1::Optimizer& options) {
  auto made = MakeOptimizer({options});
  REQUIRE(made.ok());
  return *std::move(made);
}

constexpr size_t kElements = 37;
constexpr uint64_t kUpdates = 20;

TEST_CASE("Optimizer: SGD without momentum has no slot and steps against the gradient") {
  const auto sgd = Made(Sgd(0.5, 0, false));
  CHECK(sgd->slot_names().empty());
  Training training(3, 0);
  const std::vector<float> before = training.parameters;
  training.Apply(*sgd, 1, 0, 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(training.parameters[i] == before[i] - 0.5F * Training::Draw(1, i));
  }
}

TEST_CASE("Optimizer: SGD with momentum follows its formula, plain and Nesterov") {
  for (const bool nesterov : {false, true}) {
    const auto sgd = Made(Sgd(0.1, 0.9, nesterov));
    CHECK(sgd->slot_names() == std::vector<std::string>{"momentum"});
    Training training(kElements, 1);
    std::vector<double> w(training.parameters.begin(), training.parameters.end());
    std::vector<double> v(kElements);
    for (uint64_t update = 1; update <= kUpdates; ++update) {
      training.Apply(*sgd, update, 0, kElements);
      for (size_t i = 0; i < kElements; ++i) {
        const double g = Training::Draw(update, i);
        v[i] = 0.9 * v[i] - 0.1 * g;
        w[i] += nesterov ? 0.9 * v[i] - 0.1 * g : v[i];
      }
    }
    for (size_t i = 0; i < kElements; ++i) {
      CHECK(training.parameters[i] == Approx(w[i]).margin(2e-6));
    }
  }
}

TEST_CASE("Optimizer: Adam follows Keras' formula") {
  const auto adam = Made(Adam());
  CHECK(adam->slot_names() == std::vector<std::string>{"m", "v"});
  Training training(kElements, 2);
  std::vector<double> w(training.parameters.begin(), training.parameters.end());
  std::vector<double> m(kElements), v(kElements);
  for (uint64_t update = 1; update <= kUpdates; ++update) {
    training.Apply(*adam, update, 0, kElements);
    const auto t = static_cast<double>(update);
    const double alpha = 0.001 * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t));
    for (size_t i = 0; i < kElements; ++i) {
      const double g = Training::Draw(update, i);
      m[i] += (g - m[i]) * 0.1;
      v[i] += (g * g - v[i]) * 0.001;
      w[i] -= m[i] * alpha / (std::sqrt(v[i]) + 1e-7);
    }
  }
  for (size_t i = 0; i < kElements; ++i) {
    CHECK(training.parameters[i] == Approx(w[i]).margin(1e-6));
    CHECK(training.slots[0][i] == Approx(m[i]).margin(1e-6));
    CHECK(training.slots[1][i] == Approx(v[i]).margin(1e-6));
  }
}

TEST_CASE("Optimizer: Adam's first step has the size of the rate, its millionth is finite") {
  const auto adam = Made(Adam());
  Training training(1, 2);
  const float before = training.parameters[0];
  training.Apply(*adam, 1, 0, 1);
  CHECK(std::fabs(training.parameters[0] - before) == Approx(0.001).epsilon(1e-3));
  training.Apply(*adam, 1'000'000'000'000, 0, 1);
  CHECK(std::isfinite(training.parameters[0]));
}

TEST_CASE("Optimizer: cutting the arena into ranges changes no bit") {
  for (const v1::Optimizer& options : testing::EveryRule()) {
    const auto optimizer = Made(options);
    const size_t slots = optimizer->slot_names().size();
    Training whole(kElements, slots), cut(kElements, slots);
    for (uint64_t update = 1; update <= 3; ++update) {
      whole.Apply(*optimizer, update, 0, kElements);
      cut.Apply(*optimizer, update, 30, kElements);
      cut.Apply(*optimizer, update, 0, 1);
      cut.Apply(*optimizer, update, 1, 30);
    }
    CHECK(whole.parameters == cut.parameters);
    CHECK(whole.slots == cut.slots);
  }
}

TEST_CASE("Optimizer: each row of the list is chosen by its options, with its slots") {
  const std::vector<v1::Optimizer> all = testing::EveryRule();
  REQUIRE(all.size() + 1 == std::variant_size_v<Formula>);  // AddSum is no optimizer's
  const std::vector<std::vector<std::string>> slots = {
      {},
      {"momentum"},
      {"m", "v"},
      {"v"},
      {"v", "momentum"},
      {"v", "mean"},
      {"v", "mean", "momentum"},
      {"momentum"},
      {"m", "v"},
      {"momentum_buffer"},
      {"exp_avg", "exp_avg_sq"},
      {"square_avg"},
      {"square_avg", "momentum_buffer"},
      {"square_avg", "grad_avg"},
      {"square_avg", "grad_avg", "momentum_buffer"}};
  for (size_t i = 0; i < all.size(); ++i) {
    const auto optimizer = Made(all[i]);
    CHECK(optimizer->step(1, 0).formula.index() == i);
    CHECK(optimizer->slot_names() == slots[i]);
  }
}

TEST_CASE("Optimizer: a tensor that adds its sum is no part of norms, decay and rates") {
  UpdateOptions options{.optimizer = testing::TorchSgd()};
  options.optimizer.mutable_clip()->set_global_norm(1);
  options.optimizer.mutable_weight_decay()->set_kind(v1::DECAY_KIND_L2);
  options.tensors.resize(3);
  for (v1::TensorUpdate& each : options.tensors) {
    each.set_learning_rate(1);
    each.set_weight_decay(0.1);
  }
  options.tensors[1].set_adds(true);
  options.tensors[2].set_group(1);
  const auto optimizer = MakeOptimizer(options);
  REQUIRE(optimizer.ok());
  const std::vector<NormFactors> factors =
      (*optimizer)
          ->FactorsOf(
              std::vector<TensorSquares>{{.gradient = 3}, {.gradient = 1e9}, {.gradient = 1}});
  CHECK(factors[0].gradient == 0.5);
  CHECK(!(*optimizer)->SameStep(0, 1));
  CHECK(!(*optimizer)->SameStep(0, 2));

  const std::vector<double> rates = {0.25, 0.125};
  std::vector<float> weights = {1, 2}, velocity = {4, 4};
  const std::vector<std::span<float>> slots = {velocity};
  UpdateRange((*optimizer)->step(5, 1, factors[1], rates), weights, std::vector<float>{10, -3},
              slots);
  CHECK(weights == std::vector<float>{11, -1});
  CHECK(velocity == std::vector<float>{4, 4});
  options.optimizer.mutable_clip()->set_value(0.5);
  const auto limited = MakeOptimizer(options);
  REQUIRE(limited.ok());
  CHECK((*limited)->step(5, 1, {}, rates).around.limit == 0);
  CHECK((*limited)->step(5, 0, {}, rates).around.limit == 0.5F);
  CHECK(std::get<TorchSgd>((*optimizer)->step(5, 0, {}, rates).formula).rate == 0.25F);
  CHECK(std::get<TorchSgd>((*optimizer)->step(5, 2, {}, rates).formula).rate == 0.125F);
  CHECK(std::get<TorchSgd>((*optimizer)->step(5, 2).formula).rate == 0.1F);
}

TEST_CASE("Optimizer: RMSprop follows Keras' formula, centered or not, with momentum or not") {
  for (const bool centered : {false, true}) {
    for (const double momentum : {0.0, 0.9}) {
      const auto rmsprop = Made(testing::RmsProp(momentum, centered));
      Training training(kElements, rmsprop->slot_names().size());
      std::vector<double> w(training.parameters.begin(), training.parameters.end());
      std::vector<double> v(kElements), c(kElements), b(kElements);
      for (uint64_t update = 1; update <= kUpdates; ++update) {
        training.Apply(*rmsprop, update, 0, kElements);
        for (size_t i = 0; i < kElements; ++i) {
          const double g = Training::Draw(update, i);
          v[i] = 0.9 * v[i] + 0.1 * g * g;
          c[i] = 0.9 * c[i] + 0.1 * g;
          const double variance = centered ? v[i] - c[i] * c[i] : v[i];
          b[i] = momentum * b[i] + 0.001 * g / std::sqrt(variance + 1e-7);
          w[i] -= b[i];
        }
      }
      for (size_t i = 0; i < kElements; ++i) {
        CHECK(training.parameters[i] == Approx(w[i]).margin(3e-6));
      }
    }
  }
}

// Keras takes the root of what rounding leaves of v - c^2; here it has left less than 0.
TEST_CASE("Optimizer: a centered RMSprop survives a mean square below the square of the mean") {
  std::vector<float> w = {1}, v = {1000.0F * 1000.0F - 1}, c = {1000};
  const std::vector<float> g = {1000};
  UpdateRange(Made(testing::RmsProp(0, true))->step(1, 0), w, g,
              std::vector<std::span<float>>{v, c});
  CHECK(v[0] < c[0] * c[0]);
  CHECK(std::isfinite(w[0]));
  CHECK(w[0] < 1);
}

// The operations in their order, each rounded to float32: what every build must do. A fused
// multiply-add or a reciprocal instead of a division would differ.
TEST_CASE("Optimizer: Adam rounds after every operation") {
  const auto adam = Made(Adam());
  Training training(1000, 2);
  std::vector<float> w = training.parameters;
  training.Apply(*adam, 1, 0, 1000);
  const auto alpha = static_cast<float>(0.001 * std::sqrt(1 - 0.999) / (1 - 0.9));
  const auto rest_1 = static_cast<float>(1 - 0.9);
  const auto rest_2 = static_cast<float>(1 - 0.999);
  for (size_t i = 0; i < w.size(); ++i) {
    volatile float m = Training::Draw(1, i);
    volatile float v = m * m;
    m = m * rest_1;
    v = v * rest_2;
    volatile float numerator = m * alpha;
    volatile float root = std::sqrt(v);
    volatile float denominator = root + 1e-7F;
    volatile float step = numerator / denominator;
    REQUIRE(training.parameters[i] == w[i] - step);
  }
}

TEST_CASE("Optimizer: none given is refused") {
  CHECK(Message(MakeOptimizer({}).status()) ==
        "optimizer: no rule given that this release knows; it knows sgd, adam, rmsprop, lars, "
        "lamb, torch_sgd, "
        "torch_adam, torch_rmsprop");
}

TEST_CASE("Moving statistic: keeps its share, takes the rest from the batch") {
  std::vector<float> moving = {0, 1, -2};
  const std::vector<float> batch = {1, 1, 4};
  UpdateMovingStatistic(0.75, batch, moving);
  CHECK(moving == std::vector<float>{0.25F, 1, -0.5F});
}

}  // namespace
}  // namespace ringmaster::graph
