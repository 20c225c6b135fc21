// An update of a whole model, tensor by tensor, on one thread: common/graph/update as its header
// says that it is used. What updates in pieces, on cores and on devices, are compared with.
// Thread-safe (free functions).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/graph/update/optimizer.h"
#include "common/numeric/arithmetic.h"

namespace ringmaster::testing {

// In arena layout.
struct WholeModel {
  const exact::BlockLayout& layout;
  std::span<float> parameters;
  std::vector<std::span<float>> slots;
  std::span<const float> gradients;  // reduced

  [[nodiscard]] std::vector<std::span<float>> SlotsOf(size_t at, size_t elements) const {
    std::vector<std::span<float>> parts;
    for (const std::span<float> slot : slots) parts.push_back(slot.subspan(at, elements));
    return parts;
  }
};

// The sum over a tensor's blocks of square(first element, elements).
[[nodiscard]] inline double SquaresOfTensor(const exact::BlockLayout& layout,
                                            const exact::TensorRange& tensor, const auto& square) {
  return PairwiseSum(tensor.first_block, tensor.block_count, [&](size_t b) -> double {
    return square(b * exact::kBlockElements, size_t{layout.blocks()[b].count});
  });
}

[[nodiscard]] inline double StepSquaresOfTensor(const graph::TensorStep& step,
                                                const WholeModel& model,
                                                const exact::TensorRange& tensor) {
  return SquaresOfTensor(model.layout, tensor, [&](size_t at, size_t n) {
    return graph::StepSquaresOf(step, model.parameters.subspan(at, n), model.SlotsOf(at, n));
  });
}

// By canonical number. Changes the slots of a rule that adapts by its step.
[[nodiscard]] inline std::vector<graph::NormFactors> FactorsOf(const graph::Optimizer& optimizer,
                                                               uint64_t update,
                                                               const WholeModel& model) {
  const graph::NormRule& norms = optimizer.norms();
  std::vector<graph::TensorSquares> squares(model.layout.tensors().size());
  for (const exact::TensorRange& tensor : model.layout.tensors()) {
    graph::TensorSquares& own = squares[tensor.tensor];
    own.gradient = SquaresOfTensor(model.layout, tensor, [&](size_t at, size_t n) {
      return graph::SquaresOf(model.gradients.subspan(at, n), {.limit = norms.limit});
    });
    own.weight = SquaresOfTensor(model.layout, tensor, [&](size_t at, size_t n) {
      return graph::SquaresOf(model.parameters.subspan(at, n));
    });
  }
  const std::vector<graph::NormFactors> factors = optimizer.FactorsOf(squares);
  if (!norms.needs_steps()) return factors;
  for (const exact::TensorRange& tensor : model.layout.tensors()) {
    const graph::TensorStep step = optimizer.step(update, tensor.tensor, factors[tensor.tensor]);
    graph::PrepareRange(step, model.gradients.subspan(tensor.offset(), tensor.elements),
                        model.SlotsOf(tensor.offset(), tensor.elements));
    squares[tensor.tensor].step = StepSquaresOfTensor(step, model, tensor);
  }
  return optimizer.FactorsOf(squares);
}

// Update number `update`. Returns what norms made of it, by canonical number.
inline std::vector<graph::NormFactors> UpdateWhole(const graph::Optimizer& optimizer,
                                                   uint64_t update, const WholeModel& model) {
  std::vector<graph::NormFactors> factors(model.layout.tensors().size());
  if (optimizer.needs_norms()) factors = FactorsOf(optimizer, update, model);
  for (const exact::TensorRange& tensor : model.layout.tensors()) {
    graph::UpdateRange(optimizer.step(update, tensor.tensor, factors[tensor.tensor]),
                       model.parameters.subspan(tensor.offset(), tensor.elements),
                       model.gradients.subspan(tensor.offset(), tensor.elements),
                       model.SlotsOf(tensor.offset(), tensor.elements));
  }
  return factors;
}

}  // namespace ringmaster::testing
