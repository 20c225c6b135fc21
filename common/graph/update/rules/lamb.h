// LAMB (You and others, "Large batch optimization for deep learning: training BERT in 76 minutes",
// 2020), algorithm 2: Adam's moments, bias-corrected, give r = m / (sqrt(v) + epsilon) + decay w,
// and w -= rate ratio r with the ratio |w| / |r| of a tensor. It is 1 where a norm is 0, and for
// parameters whose weights do not decay.
#pragma once

#include "common/graph/update/rules/rule.h"

namespace ringmaster::graph {

// Two passes: Prepare changes the moments, then |r| is known, and operator() changes the weight.
struct Lamb {
  static constexpr const char* kName = "lamb";
  static constexpr int kSlots = 2;
  static constexpr std::array<const char*, 2> kSlotNames = {"m", "v"};
  static constexpr Adapts kAdapts = Adapts::kByStep;
  float rate;
  float rest_1;  // 1 - beta_1
  float rest_2;
  float correction_1;  // 1 - beta_1^t
  float correction_2;
  float epsilon;
  float decay;

  static bool Selects(const auto& optimizer) { return optimizer.has_lamb(); }
  static const auto& Options(const auto& optimizer) { return optimizer.lamb(); }
  static Lamb At(const auto& options, const RuleStep& step) {
    return {.rate = static_cast<float>(step.rate),
            .rest_1 = static_cast<float>(1 - options.beta_1()),
            .rest_2 = static_cast<float>(1 - options.beta_2()),
            .correction_1 = static_cast<float>(1 - Power(options.beta_1(), step.update)),
            .correction_2 = static_cast<float>(1 - Power(options.beta_2(), step.update)),
            .epsilon = static_cast<float>(options.epsilon()),
            .decay = static_cast<float>(step.decay)};
  }
  static Trust TrustOf(const auto& /*options*/) { return {}; }

  RING_HOST_DEVICE void Prepare(float gradient, float& mean, float& square) const {
    mean += (gradient - mean) * rest_1;
    square += (gradient * gradient - square) * rest_2;
  }
  [[nodiscard]] RING_HOST_DEVICE float Step(float weight, float mean, float square) const {
    const float adam = mean / correction_1 / (SquareRoot(square / correction_2) + epsilon);
    return adam + decay * weight;
  }
  RING_HOST_DEVICE void operator()(float /*gradient*/, float& weight, float& mean,
                                   float& square) const {
    weight -= rate * Step(weight, mean, square);
  }
};

}  // namespace ringmaster::graph
