// LARS (You, Gitman and Ginsburg, "Large batch training of convolutional networks", 2017),
// algorithm 1: v = momentum v + rate ratio (g + decay w); w -= v, with the ratio of a tensor trust
// |w| / (|g| + decay |w| + epsilon). It is 1 where a norm is 0, and for parameters whose weights do
// not decay.
#pragma once

#include "common/graph/update/rules/rule.h"

namespace ringmaster::graph {

struct Lars {
  static constexpr const char* kName = "lars";
  static constexpr int kSlots = 1;
  static constexpr std::array<const char*, 1> kSlotNames = {"momentum"};
  static constexpr Adapts kAdapts = Adapts::kByGradient;
  float rate;
  float momentum;
  float decay;

  static bool Selects(const auto& optimizer) { return optimizer.has_lars(); }
  static const auto& Options(const auto& optimizer) { return optimizer.lars(); }
  static Lars At(const auto& options, const RuleStep& step) {
    return {.rate = static_cast<float>(step.rate),
            .momentum = static_cast<float>(options.momentum()),
            .decay = static_cast<float>(step.decay)};
  }
  static Trust TrustOf(const auto& options) {
    return {.factor = options.trust(), .decays = true, .epsilon = options.epsilon()};
  }

  RING_HOST_DEVICE void operator()(float gradient, float& weight, float& velocity) const {
    velocity = momentum * velocity + rate * (gradient + decay * weight);
    weight -= velocity;
  }
};

}  // namespace ringmaster::graph
