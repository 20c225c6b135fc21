// What an optimizer rule is: a struct with the scalars of one update, float32, and the formula of
// one element, for every backend: each operation correctly rounded, in this order. For host code
// and GPU kernels; nothing is included that a compiler of kernels cannot read, so that functions
// over messages are templates. Values, thread-safe. rule_list.h lists the rules.
//
//   static constexpr const char* kName;           the key of the job file
//   static constexpr int kSlots;                  float32 numbers that each element has
//   static constexpr std::array<const char*, kSlots> kSlotNames;
//   static constexpr Adapts kAdapts;              whether the rule has norms of its own
//   static bool Selects(const auto& optimizer);   v1::Optimizer is for this rule
//   static const auto& Options(const auto& optimizer);
//   static Rule At(const auto& options, const RuleStep& step);
//   void operator()(float gradient, float& weight, float& slot...) const;
#pragma once

#include <array>
#include <cstdint>

#include "common/numeric/arithmetic.h"
#include "common/numeric/elementary.h"
#include "common/numeric/host_device.h"

namespace ringmaster::graph {

// Which norms scale a tensor's step: none; |w| and |g|; |w| and that of the step itself. Then there
// are also `float rate`, which they scale, `static Trust TrustOf(const auto& options)` and, for
// kByStep, `void Prepare(float gradient, float& slot...) const`, which changes the slots, and
// `float Step(float weight, float slot...) const`, which operator() takes.
enum class Adapts : uint8_t { kNot, kByGradient, kByStep };

// The ratio of norms: factor |w| / (|other| + decay |w| + epsilon), the decay where `decays`.
struct Trust {
  double factor = 1;
  bool decays = false;
  double epsilon = 0;

  // Of a tensor, from norms that are not 0.
  RING_HOST_DEVICE double Ratio(double weight, double other, double decay) const {
    return factor * weight / (other + (decays ? decay * weight : 0.0) + epsilon);
  }
};

// One update of one tensor.
struct RuleStep {
  double rate = 0;      // of the schedule, with the tensor's factors
  uint64_t update = 1;  // 1 for the first applied one
  double decay = 0;     // of weights, for rules with norms of their own
};

}  // namespace ringmaster::graph
