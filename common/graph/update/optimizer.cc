#include "common/graph/update/optimizer.h"

#include "common/check.h"
#include "common/square_root.h"

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

// Keras' SGD without momentum has no slot.
class PlainSgd final : public Optimizer {
 public:
  explicit PlainSgd(const v1::Sgd& options) : learning_rate_(options.learning_rate()) {}

  std::vector<std::string> slot_names() const override { return {}; }
  double learning_rate(uint64_t /*update*/) const override { return learning_rate_; }

  void Apply(uint64_t /*update*/, std::span<float> parameters, std::span<const float> gradients,
             std::span<const std::span<float>> slots) const override {
    RING_CHECK(slots.empty() && gradients.size() == parameters.size(), "SGD ranges");
    const auto rate = static_cast<float>(learning_rate_);
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i] -= rate * gradients[i];
  }

 private:
  const double learning_rate_;
};

class MomentumSgd final : public Optimizer {
 public:
  explicit MomentumSgd(const v1::Sgd& options)
      : learning_rate_(options.learning_rate()),
        momentum_(static_cast<float>(options.momentum())),
        nesterov_(options.nesterov()) {}

  std::vector<std::string> slot_names() const override { return {"momentum"}; }
  double learning_rate(uint64_t /*update*/) const override { return learning_rate_; }

  void Apply(uint64_t /*update*/, std::span<float> parameters, std::span<const float> gradients,
             std::span<const std::span<float>> slots) const override {
    const size_t n = parameters.size();
    RING_CHECK(slots.size() == 1 && slots[0].size() == n && gradients.size() == n, "SGD ranges");
    const auto rate = static_cast<float>(learning_rate_);
    float* const w = parameters.data();
    float* const v = slots[0].data();
    const float* const g = gradients.data();
    for (size_t i = 0; i < n; ++i) {
      const float step = rate * g[i];
      const float velocity = momentum_ * v[i] - step;
      v[i] = velocity;
      w[i] += nesterov_ ? momentum_ * velocity - step : velocity;
    }
  }

 private:
  const double learning_rate_;
  const float momentum_;
  const bool nesterov_;
};

// Keras' formula: alpha = rate * sqrt(1 - beta_2^t) / (1 - beta_1^t); m += (g - m)(1 - beta_1);
// v += (g^2 - v)(1 - beta_2); w -= m alpha / (sqrt(v) + epsilon). The scalars are float64, rounded
// once to float32; elements are float32.
class Adam final : public Optimizer {
 public:
  explicit Adam(const v1::Adam& options) : options_(options) {}

  std::vector<std::string> slot_names() const override { return {"m", "v"}; }
  double learning_rate(uint64_t /*update*/) const override { return options_.learning_rate(); }

  void Apply(uint64_t update, std::span<float> parameters, std::span<const float> gradients,
             std::span<const std::span<float>> slots) const override {
    const size_t n = parameters.size();
    RING_CHECK(update >= 1, "updates count from 1");
    RING_CHECK(
        slots.size() == 2 && slots[0].size() == n && slots[1].size() == n && gradients.size() == n,
        "Adam ranges");
    const double correction_1 = 1 - Power(options_.beta_1(), update);
    const double correction_2 = 1 - Power(options_.beta_2(), update);
    const auto alpha =
        static_cast<float>(options_.learning_rate() * SquareRoot(correction_2) / correction_1);
    const auto rest_1 = static_cast<float>(1 - options_.beta_1());
    const auto rest_2 = static_cast<float>(1 - options_.beta_2());
    const auto epsilon = static_cast<float>(options_.epsilon());
    float* const w = parameters.data();
    float* const m = slots[0].data();
    float* const v = slots[1].data();
    const float* const g = gradients.data();
    for (size_t i = 0; i < n; ++i) {
      m[i] += (g[i] - m[i]) * rest_1;
      v[i] += (g[i] * g[i] - v[i]) * rest_2;
      w[i] -= m[i] * alpha / (SquareRoot(v[i]) + epsilon);
    }
  }

 private:
  const v1::Adam options_;
};

}  // namespace

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
