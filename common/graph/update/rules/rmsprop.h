// RMSprop (Hinton, lecture 6e of "Neural networks for machine learning", 2012) as Keras has it:
//
//   v = rho v + (1 - rho) g^2;  centered: c = rho c + (1 - rho) g, and v - c^2 stands for v
//   s = rate g / sqrt(v + epsilon);  momentum: b = momentum b + s, and b stands for s;  w -= s
//
// Rounding can make v less than c^2, of which Keras makes NaN; here v - c^2 is at least 0.
#pragma once

#include "common/graph/update/rules/rule.h"

namespace ringmaster::graph {

template <bool kMomentum, bool kCentered>
struct RmsProp {
  static constexpr const char* kName = "rmsprop";
  static constexpr int kSlots = 1 + kMomentum + kCentered;
  static constexpr std::array<const char*, kSlots> SlotNames() {
    if constexpr (kMomentum && kCentered) return {"v", "mean", "momentum"};
    if constexpr (kMomentum && !kCentered) return {"v", "momentum"};
    if constexpr (!kMomentum && kCentered) return {"v", "mean"};
    if constexpr (!kMomentum && !kCentered) return {"v"};
  }
  static constexpr std::array<const char*, kSlots> kSlotNames = SlotNames();
  static constexpr Adapts kAdapts = Adapts::kNot;
  float rate;
  float rest;  // 1 - rho
  float momentum;
  float epsilon;

  static bool Selects(const auto& optimizer) {
    return optimizer.has_rmsprop() && (optimizer.rmsprop().momentum() != 0) == kMomentum &&
           optimizer.rmsprop().centered() == kCentered;
  }
  static const auto& Options(const auto& optimizer) { return optimizer.rmsprop(); }
  static RmsProp At(const auto& options, const RuleStep& step) {
    return {.rate = static_cast<float>(step.rate),
            .rest = static_cast<float>(1 - options.rho()),
            .momentum = static_cast<float>(options.momentum()),
            .epsilon = static_cast<float>(options.epsilon())};
  }

  // The slots behind the first, as there are.
  template <typename... Slot>
  RING_HOST_DEVICE void operator()(float gradient, float& weight, float& square,
                                   Slot&... slots) const {
    float* const more[] = {&slots..., nullptr};
    square += (gradient * gradient - square) * rest;
    float variance = square;
    if constexpr (kCentered) {
      float& mean = *more[0];
      mean += (gradient - mean) * rest;
      const float around_mean = square - mean * mean;
      variance = around_mean > 0 ? around_mean : 0;
    }
    float step = rate * gradient / SquareRoot(variance + epsilon);
    if constexpr (kMomentum) {
      float& velocity = *more[kCentered];
      velocity = momentum * velocity + step;
      step = velocity;
    }
    weight -= step;
  }
};

}  // namespace ringmaster::graph
