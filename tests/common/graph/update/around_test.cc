// What is around a rule: clipping, weight decay, averages, schedules, factors of tensors; each
// against its formula, and off without a trace.
#include <catch2/catch.hpp>

#include <cmath>
#include <functional>

#include "common/graph/update/optimizer.h"
#include "common/numeric/philox.h"
#include "tests/support/optimizers.h"

namespace ringmaster::graph {
namespace {

constexpr size_t kLength = 700;  // two whole blocks and a part
constexpr uint64_t kTimes = 50;

// In [-1, 1).
float Drawn(uint64_t step, size_t i) {
  const PhiloxStream stream(2, PhiloxStream::Purpose::kSampleData, step, 0, "");
  return stream.Uniform(i) * 2 - 1;
}

struct Run {
  std::vector<float> weights = std::vector<float>(kLength);
  std::vector<std::vector<float>> slots;
  bool operator==(const Run&) const = default;
};

// kTimes updates of one tensor.
Run Updated(const UpdateOptions& options, const NormFactors& factors = {}) {
  const auto optimizer = MakeOptimizer(options);
  REQUIRE(optimizer.ok());
  Run run;
  for (size_t i = 0; i < kLength; ++i) run.weights[i] = Drawn(0, i);
  run.slots.assign((*optimizer)->slot_names().size(), std::vector<float>(kLength));
  if ((*optimizer)->averages()) run.slots.back() = run.weights;
  std::vector<float> gradients(kLength);
  for (uint64_t update = 1; update <= kTimes; ++update) {
    for (size_t i = 0; i < kLength; ++i) gradients[i] = Drawn(update, i);
    const std::vector<std::span<float>> slots(run.slots.begin(), run.slots.end());
    UpdateRange((*optimizer)->step(update, 0, factors), run.weights, gradients, slots);
  }
  return run;
}

// Of one element in doubles: w, g and the update's number.
void CheckWeights(const UpdateOptions& options, const NormFactors& factors,
                  const std::function<double(double, double, uint64_t)>& update) {
  const Run run = Updated(options, factors);
  for (size_t i = 0; i < kLength; i += 23) {
    double w = double{Drawn(0, i)};
    for (uint64_t u = 1; u <= kTimes; ++u) w = update(w, double{Drawn(u, i)}, u);
    CHECK(run.weights[i] == Approx(w).margin(5e-6));
  }
}

UpdateOptions PlainDescent() {
  return {.optimizer = testing::Sgd(0.1, 0, false), .total_updates = kTimes};
}

v1::TensorUpdate Tensor(double rate, double decay) {
  v1::TensorUpdate update;
  update.set_learning_rate(rate);
  update.set_weight_decay(decay);
  return update;
}

TEST_CASE("Around: what is off changes no bit") {
  for (const v1::Optimizer& rule :
       {testing::Adam(), testing::Sgd(0.1, 0.9, true), testing::Sgd(0.1, 0, false)}) {
    const Run plain = Updated({rule});
    UpdateOptions off = {rule};
    off.optimizer.mutable_weight_decay()->set_kind(v1::DECAY_KIND_L2);
    off.tensors = {Tensor(1, 0)};
    CHECK(Updated(off) == plain);
    // With an average the loops are others.
    off.optimizer.mutable_ema()->set_decay(0.9);
    Run averaged = Updated(off);
    averaged.slots.pop_back();
    CHECK(averaged == plain);
  }
}

TEST_CASE("Around: gradients are clipped to a value") {
  UpdateOptions options = PlainDescent();
  options.optimizer.mutable_clip()->set_value(0.25);
  CheckWeights(options, {},
               [](double w, double g, uint64_t) { return w - 0.1 * std::clamp(g, -0.25, 0.25); });
}

TEST_CASE("Around: gradients are scaled for their norm") {
  CheckWeights(PlainDescent(), {.gradient = 0.3},
               [](double w, double g, uint64_t) { return w - 0.1 * (0.3 * g); });
}

TEST_CASE("Around: decay of kind l2 is part of the gradient, behind clipping") {
  UpdateOptions options = PlainDescent();
  options.optimizer.mutable_weight_decay()->set_kind(v1::DECAY_KIND_L2);
  options.optimizer.mutable_clip()->set_value(0.5);
  options.tensors = {Tensor(1, 0.2)};
  CheckWeights(options, {.gradient = 0.5}, [](double w, double g, uint64_t) {
    return w - 0.1 * (0.5 * std::clamp(g, -0.5, 0.5) + 0.2 * w);
  });
}

TEST_CASE("Around: decoupled decay goes by the rate of the schedule and of the tensor") {
  UpdateOptions options = PlainDescent();
  options.optimizer.mutable_weight_decay()->set_kind(v1::DECAY_KIND_DECOUPLED);
  options.optimizer.mutable_schedule()->mutable_polynomial()->set_power(1);
  options.tensors = {Tensor(0.5, 0.2)};
  CheckWeights(options, {}, [](double w, double g, uint64_t u) {
    const double rate = 0.1 * 0.5 * (1 - static_cast<double>(u) / kTimes);
    return w - rate * 0.2 * w - rate * g;
  });
}

TEST_CASE("Around: the rule sees gradients without decoupled decay, Adam becomes AdamW") {
  UpdateOptions options = {.optimizer = testing::Adam()};
  options.optimizer.mutable_adam()->set_learning_rate(0.01);
  options.tensors = {Tensor(1, 0.3)};
  options.optimizer.mutable_weight_decay()->set_kind(v1::DECAY_KIND_DECOUPLED);
  const Run run = Updated(options);
  for (size_t i = 0; i < kLength; i += 23) {
    double w = double{Drawn(0, i)}, m = 0, v = 0;
    for (uint64_t u = 1; u <= kTimes; ++u) {
      const double g = double{Drawn(u, i)};
      const auto t = static_cast<double>(u);
      w -= 0.01 * 0.3 * w;
      m += (g - m) * 0.1;
      v += (g * g - v) * 0.001;
      const double alpha = 0.01 * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t));
      w -= m * alpha / (std::sqrt(v) + 1e-7);
    }
    CHECK(run.weights[i] == Approx(w).margin(5e-6));
  }
}

TEST_CASE("Around: the average copies until it starts, then follows") {
  UpdateOptions options = PlainDescent();
  options.optimizer.mutable_ema()->set_decay(0.9);
  options.optimizer.mutable_ema()->set_start_update(20);
  const Run run = Updated(options);
  for (size_t i = 0; i < kLength; i += 23) {
    double w = double{Drawn(0, i)}, a = w;
    for (uint64_t u = 1; u <= kTimes; ++u) {
      w -= 0.1 * double{Drawn(u, i)};
      a = u <= 20 ? w : 0.9 * a + 0.1 * w;
    }
    CHECK(run.slots.back()[i] == Approx(a).margin(5e-6));
    CHECK(run.slots.back()[i] != run.weights[i]);
  }
}

TEST_CASE("Around: norms are clipped together and one by one") {
  const std::vector<TensorSquares> squares = {{.gradient = 9}, {.gradient = 0}, {.gradient = 16}};
  const auto factors = [&](const v1::Clip& clip) {
    UpdateOptions options = PlainDescent();
    *options.optimizer.mutable_clip() = clip;
    const auto optimizer = MakeOptimizer(options);
    REQUIRE((*optimizer)->needs_norms());
    std::vector<double> found;
    for (const NormFactors& each : (*optimizer)->FactorsOf(squares)) {
      found.push_back(each.gradient);
      CHECK(each.rate == 1);
    }
    return found;
  };
  v1::Clip clip;
  clip.set_global_norm(1);
  CHECK(factors(clip) == std::vector<double>{1.0 / 5, 1.0 / 5, 1.0 / 5});
  clip.set_global_norm(5);
  CHECK(factors(clip) == std::vector<double>{1, 1, 1});
  clip.set_tensor_norm(3.5);
  CHECK(factors(clip) == std::vector<double>{1, 1, 3.5 / 4});
  clip.set_value(1);
  CHECK(!(*MakeOptimizer({.optimizer = testing::Adam()}))->needs_norms());
}

TEST_CASE("Around: squares are of what the limit leaves, in lanes") {
  std::vector<float> values(256);
  double lanes[8] = {};
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = Drawn(7, i) * std::ldexp(1.0F, static_cast<int>(i % 40));
    lanes[i % 8] += double{values[i]} * double{values[i]};
  }
  CHECK(SquaresOf(values) == ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
                                 ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7])));
  CHECK(SquaresOf(std::vector<float>{3, -4}, {.limit = 2}) == 8);
}

TEST_CASE("Around: tensors have rates of their own") {
  UpdateOptions options = PlainDescent();
  options.tensors = {Tensor(1, 0), Tensor(0, 0.1), Tensor(1, 0), Tensor(1, 0.1)};
  const auto optimizer = MakeOptimizer(options);
  CHECK((*optimizer)->SameStep(0, 2));
  CHECK(!(*optimizer)->SameStep(0, 1));
  CHECK(!(*optimizer)->SameStep(0, 3));
  CHECK(std::get<PlainSgd>((*optimizer)->step(1, 1).formula).rate == 0);
  CHECK(std::get<PlainSgd>((*optimizer)->step(1, 2).formula).rate == 0.1F);
}

}  // namespace
}  // namespace ringmaster::graph
