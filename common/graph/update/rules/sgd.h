// Gradient descent, Keras' formulas. Without momentum there is no slot.
#pragma once

#include "common/graph/update/rules/rule.h"

namespace ringmaster::graph {

struct PlainSgd {
  static constexpr const char* kName = "sgd";
  static constexpr int kSlots = 0;
  static constexpr std::array<const char*, 0> kSlotNames = {};
  static constexpr Adapts kAdapts = Adapts::kNot;
  float rate;

  static bool Selects(const auto& optimizer) {
    return optimizer.has_sgd() && optimizer.sgd().momentum() == 0;
  }
  static const auto& Options(const auto& optimizer) { return optimizer.sgd(); }
  static PlainSgd At(const auto& /*options*/, const RuleStep& step) {
    return {.rate = static_cast<float>(step.rate)};
  }

  RING_HOST_DEVICE void operator()(float gradient, float& weight) const {
    weight -= rate * gradient;
  }
};

struct MomentumSgd {
  static constexpr const char* kName = "sgd";
  static constexpr int kSlots = 1;
  static constexpr std::array<const char*, 1> kSlotNames = {"momentum"};
  static constexpr Adapts kAdapts = Adapts::kNot;
  float rate;
  float momentum;
  bool nesterov;

  static bool Selects(const auto& optimizer) {
    return optimizer.has_sgd() && optimizer.sgd().momentum() != 0;
  }
  static const auto& Options(const auto& optimizer) { return optimizer.sgd(); }
  static MomentumSgd At(const auto& options, const RuleStep& step) {
    return {.rate = static_cast<float>(step.rate),
            .momentum = static_cast<float>(options.momentum()),
            .nesterov = options.nesterov()};
  }

  RING_HOST_DEVICE void operator()(float gradient, float& weight, float& velocity) const {
    const float step = rate * gradient;
    velocity = momentum * velocity - step;
    weight += nesterov ? momentum * velocity - step : velocity;
  }
};

}  // namespace ringmaster::graph
