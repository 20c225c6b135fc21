// What an update does to parameters, slots and averages: a rule (rule_list.h) at the rate of its
// schedule, with clipping, weight decay and the average around it. Correctly rounded arithmetic
// only, no libm, no contraction, so every worker gets the same bits. Immutable, thread-safe; knows
// no ring.
//
// An update, in this order: norms of gradients (and of weights), where something needs them, then
// Around::Gradient and Around::Decayed of an element, the rule, and Around::Averaged.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/graph/update/rule_list.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::graph {

// What the slot of the average is called: the last one, where the job has it. It begins as a copy
// of the parameters.
inline constexpr const char* kAverageSlot = "average";

// What determines updates beside gradients.
struct UpdateOptions {
  v1::Optimizer optimizer;                // resolved: every field set and in range
  uint64_t total_updates = 0;             // T of schedules
  std::vector<v1::TensorUpdate> tensors;  // by canonical number; empty: rates as written, no decay
};
[[nodiscard]] UpdateOptions UpdateOptionsOf(const v1::ResultSpec& spec);

class Optimizer {
 public:
  explicit Optimizer(UpdateOptions options);

  // Names of the float32 slots that each element has, e.g. {"momentum"} or {"m", "v"}; the last
  // may be kAverageSlot.
  [[nodiscard]] const std::vector<std::string>& slot_names() const { return slot_names_; }
  [[nodiscard]] bool averages() const { return options_.optimizer.has_ema(); }
  // Of update number `update`: what the schedule makes of it, without Adam's bias correction.
  [[nodiscard]] double learning_rate(uint64_t update) const;

  // Where an update needs no norms each element can be updated by itself.
  [[nodiscard]] bool needs_norms() const { return norms_.clips() || norms_.needs_weights(); }
  [[nodiscard]] const NormRule& norms() const { return norms_; }
  [[nodiscard]] TensorNorms NormsOf(uint32_t tensor) const;
  // Of each tensor, by canonical number, from the squares of all; gradients' factors without the
  // steps' squares where the rule adapts by these.
  [[nodiscard]] std::vector<NormFactors> FactorsOf(std::span<const TensorSquares> squares) const;

  // What update number `update` (1 for the first applied one) does to each element of a tensor:
  // for a backend that updates where the parameters are. `rates`: of each group of tensors, in
  // place of the schedule's; empty: that one.
  [[nodiscard]] TensorStep step(uint64_t update, uint32_t tensor, const NormFactors& factors = {},
                                std::span<const double> rates = {}) const;
  // Whether two tensors have equal steps, but for their norms.
  [[nodiscard]] bool SameStep(uint32_t a, uint32_t b) const;

 private:
  [[nodiscard]] v1::TensorUpdate tensor(uint32_t number) const;

  const UpdateOptions options_;
  double base_rate_ = 0;
  NormRule norms_;
  std::vector<std::string> slot_names_;
};

// INVALID_ARGUMENT when there is no rule.
[[nodiscard]] StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const UpdateOptions& options);

// The first pass of a rule that adapts by its step: changes the slots. Then the squares of a
// block's steps, in lanes, and UpdateRange.
void PrepareRange(const TensorStep& step, std::span<const float> gradients,
                  std::span<const std::span<float>> slots);
[[nodiscard]] double StepSquaresOf(const TensorStep& step, std::span<const float> parameters,
                                   std::span<const std::span<float>> slots);

// Does a step to a range: parameters, gradients and each slot have the same length, a whole number
// of blocks into the tensor. Different ranges may run side by side.
void UpdateRange(const TensorStep& step, std::span<float> parameters,
                 std::span<const float> gradients, std::span<const std::span<float>> slots);

// The squares of a block of at most 256 elements, in lanes. `around`: its limit counts.
[[nodiscard]] double SquaresOf(std::span<const float> values, const Around& around = {});

// moving = moving * momentum + batch * (1 - momentum), each operation rounded to float32.
void UpdateMovingStatistic(double momentum, std::span<const float> batch, std::span<float> moving);

}  // namespace ringmaster::graph
