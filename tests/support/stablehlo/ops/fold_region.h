// The region of a reduction as a function of two numbers: one of our own loops where it is a single
// op, else the region itself, run on scalars. Free functions.
#pragma once

#include <memory>

#include "tests/support/stablehlo/number.h"
#include "tests/support/stablehlo/operation.h"
#include "tests/support/stablehlo/ops/arithmetic.h"
#include "tests/support/stablehlo/ops/numbers.h"

namespace ringmaster::testing::stablehlo {

using Region = std::shared_ptr<const Computation>;

// Of elements of `type`: nullopt where the region is no single fold.
inline std::optional<Fold> FoldOf(const Computation& region, Type type) {
  const std::string& op = region.only_op();
  if (op.empty()) return std::nullopt;
  const std::optional<Fold> fold = FindFold(std::string_view(op).substr(op.find('.') + 1));
  return fold && (*fold <= Fold::kMinimum || !IsFloat(type)) ? fold : std::nullopt;
}

inline std::vector<Tensor> RunOn(const Computation& region, const std::vector<Tensor>& scalars) {
  std::vector<const Tensor*> arguments;
  for (const Tensor& scalar : scalars) arguments.push_back(&scalar);
  return region.Run(arguments);
}

inline Tensor FloatScalar(Type type, float value) {
  Tensor scalar(TensorType{type, {}});
  Narrow(&value, &scalar);
  return scalar;
}

// body(function) of two floats, what is there and what is new: for regions on floats of `type`.
template <typename Body>
Kernel WithRegion(const Region& region, Type type, Body&& body) {
  if (FoldOf(*region, type) == Fold::kAdd) return body([](float a, float b) { return a + b; });
  if (FoldOf(*region, type) == Fold::kMaximum)
    return body([](float a, float b) { return Maximum(a, b); });
  return body([region, type](float a, float b) {
    return Widened<float>(RunOn(*region, {FloatScalar(type, a), FloatScalar(type, b)})[0])[0];
  });
}

}  // namespace ringmaster::testing::stablehlo
