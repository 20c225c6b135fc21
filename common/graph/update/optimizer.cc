#include "common/graph/update/optimizer.h"

#include "common/arithmetic.h"
#include "common/check.h"

namespace ringmaster::graph {
namespace {

// base^exponent by squaring: a fixed sequence of float64 products, so the same bits everywhere,
// which std::pow does not promise.
double Power(double base, uint64_t exponent) {
  double result = 1;
  for (double square = base; exponent > 0; exponent >>= 1, square *= square) {
    if ((exponent & 1) != 0) result *= square;
  }
  return result;
}

// The loop over a range, with a formula's scalars in registers.
void ApplyTo(PlainSgdFormula formula, size_t n, const float* gradients, float* parameters,
             std::span<const std::span<float>> /*slots*/) {
  for (size_t i = 0; i < n; ++i) formula(gradients[i], parameters[i]);
}

void ApplyTo(MomentumSgdFormula formula, size_t n, const float* gradients, float* parameters,
             std::span<const std::span<float>> slots) {
  float* const velocities = slots[0].data();
  for (size_t i = 0; i < n; ++i) formula(gradients[i], parameters[i], velocities[i]);
}

void ApplyTo(AdamFormula formula, size_t n, const float* gradients, float* parameters,
             std::span<const std::span<float>> slots) {
  float* const means = slots[0].data();
  float* const squares = slots[1].data();
  for (size_t i = 0; i < n; ++i) formula(gradients[i], parameters[i], means[i], squares[i]);
}

// Keras' SGD without momentum has no slot.
class PlainSgd final : public Optimizer {
 public:
  explicit PlainSgd(const v1::Sgd& options) : learning_rate_(options.learning_rate()) {}

  std::vector<std::string> slot_names() const override { return {}; }
  double learning_rate(uint64_t /*update*/) const override { return learning_rate_; }
  Formula formula(uint64_t /*update*/) const override {
    return PlainSgdFormula{.rate = static_cast<float>(learning_rate_)};
  }

 private:
  const double learning_rate_;
};

class MomentumSgd final : public Optimizer {
 public:
  explicit MomentumSgd(const v1::Sgd& options) : options_(options) {}

  std::vector<std::string> slot_names() const override { return {"momentum"}; }
  double learning_rate(uint64_t /*update*/) const override { return options_.learning_rate(); }
  Formula formula(uint64_t /*update*/) const override {
    return MomentumSgdFormula{.rate = static_cast<float>(options_.learning_rate()),
                              .momentum = static_cast<float>(options_.momentum()),
                              .nesterov = options_.nesterov()};
  }

 private:
  const v1::Sgd options_;
};

// The scalars are float64, rounded once to float32; elements are float32.
class Adam final : public Optimizer {
 public:
  explicit Adam(const v1::Adam& options) : options_(options) {}

  std::vector<std::string> slot_names() const override { return {"m", "v"}; }
  double learning_rate(uint64_t /*update*/) const override { return options_.learning_rate(); }
  Formula formula(uint64_t update) const override {
    RING_CHECK(update >= 1, "updates count from 1");
    const double correction_1 = 1 - Power(options_.beta_1(), update);
    const double correction_2 = 1 - Power(options_.beta_2(), update);
    return AdamFormula{.alpha = static_cast<float>(options_.learning_rate() *
                                                   SquareRoot(correction_2) / correction_1),
                       .rest_1 = static_cast<float>(1 - options_.beta_1()),
                       .rest_2 = static_cast<float>(1 - options_.beta_2()),
                       .epsilon = static_cast<float>(options_.epsilon())};
  }

 private:
  const v1::Adam options_;
};

}  // namespace

void Optimizer::Apply(uint64_t update, std::span<float> parameters,
                      std::span<const float> gradients,
                      std::span<const std::span<float>> slots) const {
  const size_t n = parameters.size();
  RING_CHECK(gradients.size() == n, "gradients of a range");
  for (const std::span<float> slot : slots) RING_CHECK(slot.size() == n, "slots of a range");
  std::visit(
      [&]<typename T>(const T& formula) {
        RING_CHECK(slots.size() == size_t{T::kSlots}, "as many slots as the formula has");
        ApplyTo(formula, n, gradients.data(), parameters.data(), slots);
      },
      formula(update));
}

StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const v1::Optimizer& optimizer) {
  switch (optimizer.kind_case()) {
    case v1::Optimizer::kSgd:
      if (optimizer.sgd().momentum() == 0) return std::make_unique<PlainSgd>(optimizer.sgd());
      return std::make_unique<MomentumSgd>(optimizer.sgd());
    case v1::Optimizer::kAdam:
      return std::make_unique<Adam>(optimizer.adam());
    case v1::Optimizer::KIND_NOT_SET:
      break;
  }
  return InvalidArgument("optimizer: none given; expected sgd or adam");
}

void UpdateMovingStatistic(double momentum, std::span<const float> batch, std::span<float> moving) {
  RING_CHECK(batch.size() == moving.size(), "moving statistic ranges");
  const auto kept = static_cast<float>(momentum);
  const auto added = static_cast<float>(1 - momentum);
  for (size_t i = 0; i < moving.size(); ++i) moving[i] = moving[i] * kept + batch[i] * added;
}

}  // namespace ringmaster::graph
