// Adam (Kingma and Ba, 2015) as Keras has it: alpha = rate * sqrt(1 - beta_2^t) / (1 - beta_1^t),
// and epsilon is added to sqrt(v). With decoupled weight decay this is AdamW.
#pragma once

#include "common/graph/update/rules/rule.h"

namespace ringmaster::graph {

// The scalars are float64, rounded once to float32; elements are float32.
struct Adam {
  static constexpr const char* kName = "adam";
  static constexpr int kSlots = 2;
  static constexpr std::array<const char*, 2> kSlotNames = {"m", "v"};
  static constexpr Adapts kAdapts = Adapts::kNot;
  float alpha;
  float rest_1;  // 1 - beta_1
  float rest_2;
  float epsilon;

  static bool Selects(const auto& optimizer) { return optimizer.has_adam(); }
  static const auto& Options(const auto& optimizer) { return optimizer.adam(); }
  static Adam At(const auto& options, const RuleStep& step) {
    const double correction_1 = 1 - Power(options.beta_1(), step.update);
    const double correction_2 = 1 - Power(options.beta_2(), step.update);
    return {.alpha = static_cast<float>(step.rate * SquareRoot(correction_2) / correction_1),
            .rest_1 = static_cast<float>(1 - options.beta_1()),
            .rest_2 = static_cast<float>(1 - options.beta_2()),
            .epsilon = static_cast<float>(options.epsilon())};
  }

  RING_HOST_DEVICE void operator()(float gradient, float& weight, float& mean,
                                   float& square) const {
    mean += (gradient - mean) * rest_1;
    square += (gradient * gradient - square) * rest_2;
    weight -= mean * alpha / (SquareRoot(square) + epsilon);
  }
};

}  // namespace ringmaster::graph
