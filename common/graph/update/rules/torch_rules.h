// PyTorch's optimizers (torch.optim): SGD, Adam and AdamW, RMSprop. Where Keras has the rate in the
// momentum and epsilon beside what is not corrected, these have not; slots have PyTorch's names.
#pragma once

#include "common/graph/update/rules/rule.h"

namespace ringmaster::graph {

// v = momentum v + (1 - dampening) g, but the first time v = g; w -= rate v, or with nesterov
// w -= rate (g + momentum v). Without momentum this is PlainSgd.
struct TorchSgd {
  static constexpr const char* kName = "torch_sgd";
  static constexpr int kSlots = 1;
  static constexpr std::array<const char*, 1> kSlotNames = {"momentum_buffer"};
  static constexpr Adapts kAdapts = Adapts::kNot;
  float rate;
  float momentum;
  float taken;  // of a gradient
  bool nesterov;

  static bool Selects(const auto& optimizer) { return optimizer.has_torch_sgd(); }
  static const auto& Options(const auto& optimizer) { return optimizer.torch_sgd(); }
  static TorchSgd At(const auto& options, const RuleStep& step) {
    const bool whole = step.update == 1 || options.momentum() == 0;
    const double taken = whole ? 1 : 1 - options.dampening();
    return {.rate = static_cast<float>(step.rate),
            .momentum = static_cast<float>(options.momentum()),
            .taken = static_cast<float>(taken),
            .nesterov = options.nesterov()};
  }

  RING_HOST_DEVICE void operator()(float gradient, float& weight, float& velocity) const {
    velocity = momentum * velocity + taken * gradient;
    weight -= rate * (nesterov ? gradient + momentum * velocity : velocity);
  }
};

// m += (g - m) (1 - beta_1), v += (g^2 - v) (1 - beta_2);
// w -= rate / (1 - beta_1^t) m / (sqrt(v) (1 / sqrt(1 - beta_2^t)) + epsilon).
struct TorchAdam {
  static constexpr const char* kName = "torch_adam";
  static constexpr int kSlots = 2;
  static constexpr std::array<const char*, 2> kSlotNames = {"exp_avg", "exp_avg_sq"};
  static constexpr Adapts kAdapts = Adapts::kNot;
  float rate;  // over the mean's correction
  float rest_1;
  float rest_2;
  float correction;  // factor of the root
  float epsilon;

  static bool Selects(const auto& optimizer) { return optimizer.has_torch_adam(); }
  static const auto& Options(const auto& optimizer) { return optimizer.torch_adam(); }
  static TorchAdam At(const auto& options, const RuleStep& step) {
    const double correction_1 = 1 - Power(options.beta_1(), step.update);
    const double correction_2 = 1 - Power(options.beta_2(), step.update);
    return {.rate = static_cast<float>(step.rate / correction_1),
            .rest_1 = static_cast<float>(1 - options.beta_1()),
            .rest_2 = static_cast<float>(1 - options.beta_2()),
            .correction = static_cast<float>(1 / SquareRoot(correction_2)),
            .epsilon = static_cast<float>(options.epsilon())};
  }

  RING_HOST_DEVICE void operator()(float gradient, float& weight, float& mean,
                                   float& square) const {
    mean += (gradient - mean) * rest_1;
    square += (gradient * gradient - square) * rest_2;
    weight -= rate * mean / (SquareRoot(square) * correction + epsilon);
  }
};

// v += (g^2 - v) (1 - alpha);  centered: c += (g - c) (1 - alpha), and v - c^2, at least 0, stands
// for v;  s = g / (sqrt(v) + epsilon);  momentum: b = momentum b + s stands for s;  w -= rate s.
template <bool kMomentum, bool kCentered>
struct TorchRmsProp {
  static constexpr const char* kName = "torch_rmsprop";
  static constexpr int kSlots = 1 + kMomentum + kCentered;
  static constexpr std::array<const char*, kSlots> SlotNames() {
    if constexpr (kMomentum && kCentered) return {"square_avg", "grad_avg", "momentum_buffer"};
    if constexpr (kMomentum && !kCentered) return {"square_avg", "momentum_buffer"};
    if constexpr (!kMomentum && kCentered) return {"square_avg", "grad_avg"};
    if constexpr (!kMomentum && !kCentered) return {"square_avg"};
  }
  static constexpr std::array<const char*, kSlots> kSlotNames = SlotNames();
  static constexpr Adapts kAdapts = Adapts::kNot;
  float rate;
  float rest;  // 1 - alpha
  float momentum;
  float epsilon;

  static bool Selects(const auto& optimizer) {
    return optimizer.has_torch_rmsprop() &&
           (optimizer.torch_rmsprop().momentum() != 0) == kMomentum &&
           optimizer.torch_rmsprop().centered() == kCentered;
  }
  static const auto& Options(const auto& optimizer) { return optimizer.torch_rmsprop(); }
  static TorchRmsProp At(const auto& options, const RuleStep& step) {
    return {.rate = static_cast<float>(step.rate),
            .rest = static_cast<float>(1 - options.alpha()),
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
    float step = gradient / (SquareRoot(variance) + epsilon);
    if constexpr (kMomentum) {
      float& velocity = *more[kCentered];
      velocity = momentum * velocity + step;
      step = velocity;
    }
    weight -= rate * step;
  }
};

// No optimizer's: what a tensor gets that adds its sum as it is (TensorUpdate.adds).
struct AddSum {
  static constexpr const char* kName = "";
  static constexpr int kSlots = 0;
  static constexpr std::array<const char*, 0> kSlotNames = {};
  static constexpr Adapts kAdapts = Adapts::kNot;

  static bool Selects(const auto& /*optimizer*/) { return false; }
  static const auto& Options(const auto& optimizer) { return optimizer.sgd(); }
  static AddSum At(const auto& /*options*/, const RuleStep& /*step*/) { return {}; }

  RING_HOST_DEVICE void operator()(float sum, float& weight) const { weight += sum; }
};

}  // namespace ringmaster::graph
