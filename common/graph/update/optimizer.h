// Optimizers as formulas over ranges of the arena: correctly rounded float32 + - * / sqrt only, no
// libm, no contraction, so every worker gets the same bits. Thread-compatible; knows no ring.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/graph/update/formulas.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::graph {

using Formula = std::variant<PlainSgdFormula, MomentumSgdFormula, AdamFormula>;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Names of the float32 slots that each element has, e.g. {"momentum"} or {"m", "v"}.
  [[nodiscard]] virtual std::vector<std::string> slot_names() const = 0;
  // Of update number `update`: what a schedule makes of it, without Adam's bias correction.
  [[nodiscard]] virtual double learning_rate(uint64_t update) const = 0;
  // What update number `update` (1 for the first applied one) does to each element: for a backend
  // that updates where the parameters are.
  [[nodiscard]] virtual Formula formula(uint64_t update) const = 0;
  // Does that to a range: parameters, gradients and each slot have the same length. Different
  // ranges may run side by side.
  void Apply(uint64_t update, std::span<float> parameters, std::span<const float> gradients,
             std::span<const std::span<float>> slots) const;
};

// `optimizer` must be resolved: every field set and in range.
[[nodiscard]] StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const v1::Optimizer& optimizer);

// moving = moving * momentum + batch * (1 - momentum), each operation rounded to float32.
void UpdateMovingStatistic(double momentum, std::span<const float> batch, std::span<float> moving);

}  // namespace ringmaster::graph
