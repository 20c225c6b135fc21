#include <cmath>

#include "common/graph/ops/reference_executor.h"
#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {
namespace {

// Statistics are at inputs 2 and 3 of the gradient, the last two of inference.
template <size_t kVariance>
void PositiveVariance(const OpCase& /*self*/, OpCase::Operands* operands) {
  for (double& variance : (*operands)[kVariance]) variance = std::abs(variance) + 0.5;
}

// Of a gradient whose relu is computed once more: what decides is away from 0, where a rounding
// could turn it. x lies on eighths, its mean between two of them, and beta, without which it is 0,
// is a number of eighths times the scale. Of a relu6 the scale is larger, so that there is
// something above 6, and x goes on by eighths until y is away from 6, too.
void AwayFromKink(const OpCase& self, OpCase::Operands* operands) {
  PositiveVariance<3>(self, operands);
  const auto& attributes = std::get<BatchNormGradient>(self.kind);
  auto& all = *operands;
  for (double& x : all[0]) x = std::round(x * 8) / 8;
  const bool relu6 = attributes.activation == Activation::kRelu6;
  for (size_t c = 0; c < all[2].size(); ++c) {
    if (relu6 && attributes.scale) all[4][c] *= 4;
    all[2][c] = (2 * std::floor(all[2][c] * 8) + 1) / 16;
    if (!attributes.center) continue;
    const double gamma = attributes.scale ? all[4][c] : 1;
    double& beta = all[attributes.scale ? 5 : 4][c];
    beta = Round(gamma / std::sqrt(all[3][c] + attributes.epsilon) * std::round(beta * 8) / 8,
                 DType::kFloat32);
  }
  for (size_t i = 0; relu6 && i < all[0].size(); ++i) {
    const size_t c = i % all[2].size();
    const double scale =
        (attributes.scale ? all[4][c] : 1) / std::sqrt(all[3][c] + attributes.epsilon);
    const double beta = attributes.center ? all[attributes.scale ? 5 : 4][c] : 0;
    while (std::abs((all[0][i] - all[2][c]) * scale + beta - 6) < 0.0625) all[0][i] += 0.125;
  }
}

// A mean of many deviations, exact in 16 bits: a sum of squares would lose the variance.
void FarFromZero(const OpCase& /*self*/, OpCase::Operands* operands) {
  for (double& value : operands->front()) value = 8 + std::round(value * 4) / 16;
}

OpCase NormTraining(const char* what, const BatchNormAttributes& attributes, const Shape& x) {
  const TensorType channels = {{x.back()}};
  OpCase made = {what, BatchNorm{attributes}, {{x}}};
  made.inputs.resize(1 + (attributes.scale ? 1 : 0) + (attributes.center ? 1 : 0), channels);
  return made;
}

// With another operand that is added, at the end; or y behind its gradient's.
OpCase WithResidual(OpCase made) {
  std::visit(
      []<typename Op>(Op& op) {
        if constexpr (std::is_base_of_v<BatchNormAttributes, Op>) op.residual = true;
      },
      made.kind);
  made.inputs.push_back(made.inputs[0]);
  return made;
}

// dy as two addends.
OpCase OfTwo(OpCase made) {
  made.inputs.push_back(made.inputs[0]);
  return made;
}

OpCase NormGradient(const char* what, const BatchNormAttributes& attributes, const Shape& x) {
  const TensorType channels = {{x.back()}};
  OpCase made = {.what = what,
                 .kind = BatchNormGradient{attributes},
                 .inputs = {{x}, {x}, channels, channels},
                 .prepare = PositiveVariance<3>};
  if (attributes.scale) made.inputs.push_back(channels);
  if (attributes.activation == Activation::kNone) return made;
  if (attributes.activation != Activation::kSwish) made.prepare = AwayFromKink;
  if (attributes.center) made.inputs.push_back(channels);
  return made;
}

// With gamma and beta, or without.
OpCase NormInference(const char* what, const BatchNormAttributes& attributes, const Shape& x) {
  const TensorType channels = {{x.back()}};
  std::vector<TensorType> inputs = {{x}};
  inputs.resize(attributes.scale ? 5 : 3, channels);
  return {.what = what,
          .kind = BatchNormInference{attributes},
          .inputs = std::move(inputs),
          .prepare = attributes.scale ? PositiveVariance<4> : PositiveVariance<2>,
          .forward_only = attributes.activation != Activation::kNone || Elements(x) > 100,
          .constants = 0b11110};
}

OpCase NormInferenceGradient(const char* what, const BatchNormAttributes& attributes,
                             const Shape& x) {
  const TensorType channels = {{x.back()}};
  OpCase made = {.what = what,
                 .kind = BatchNormInferenceGradient{attributes},
                 .inputs = {{x}, channels},
                 .prepare = attributes.scale ? PositiveVariance<2> : PositiveVariance<1>,
                 .forward_only = true};
  if (attributes.scale) made.inputs.push_back(channels);
  return made;
}

}  // namespace

std::vector<OpCase> BatchNormCases() {
  const BatchNormAttributes plain;
  const BatchNormAttributes relu = {1e-3, Activation::kRelu};
  const BatchNormAttributes relu6 = {1e-3, Activation::kRelu6};
  const BatchNormAttributes swish = {1e-3, Activation::kSwish};
  const BatchNormAttributes no_gamma = {.scale = false}, no_beta = {.center = false},
                            bare = {.scale = false, .center = false};
  BatchNormAttributes relu_bare = bare, relu_no_beta = no_beta, relu_no_gamma = no_gamma;
  BatchNormAttributes swish_bare = bare, swish_no_gamma = no_gamma;
  swish_bare.activation = swish_no_gamma.activation = Activation::kSwish;
  for (auto* fused : {&relu_bare, &relu_no_beta, &relu_no_gamma}) {
    fused->activation = Activation::kRelu;
  }
  OpCase offset = NormTraining("an offset that would cancel", plain, {600, 8});
  offset.prepare = FarFromZero;
  return {
      NormTraining("images", plain, {2, 3, 5, 3}),
      NormTraining("features, large epsilon", {0.5}, {7, 3}),
      NormTraining("relu", relu, {3, 3, 2, 3}),
      NormTraining("relu6", relu6, {3, 3, 2, 3}),
      NormTraining("relu6, several pieces of rows", relu6, {40, 9, 9, 64}),
      NormTraining("swish", swish, {3, 3, 2, 3}),
      NormTraining("swish, odd channels", swish, {3, 5, 7, 19}),
      NormTraining("swish, several pieces of rows", swish, {40, 9, 9, 64}),
      NormTraining("odd channels", plain, {3, 5, 7, 19}),
      NormTraining("few channels, several pieces of rows", plain, {9, 30, 31, 5}),
      NormTraining("relu, few channels", relu, {9, 8, 7, 4}),
      NormTraining("relu, several pieces of rows", relu, {40, 9, 9, 64}),
      NormTraining("several tiles of channels", plain, {1100, 100}),
      NormTraining("one channel", plain, {5000, 1}),
      NormTraining("relu, one row", relu, {1, 1, 1, 40}),
      offset,
      WithResidual(NormTraining("residual, few elements", plain, {2, 3, 5, 3})),
      WithResidual(NormTraining("residual", plain, {9, 8, 7, 19})),
      WithResidual(NormTraining("residual, relu", relu, {3, 3, 2, 3})),
      WithResidual(NormTraining("residual, relu, several pieces of rows", relu, {40, 9, 9, 64})),
      WithResidual(NormTraining("residual, relu, several tiles of channels", relu, {1100, 100})),
      NormGradient("relu, several pieces of rows", relu, {40, 9, 9, 64}),
      NormGradient("several tiles of channels", plain, {1100, 100}),
      NormGradient("several pieces of rows", plain, {40, 9, 9, 64}),
      NormGradient("relu, three channels", relu, {700, 3}),
      NormGradient("odd channels", plain, {3, 5, 7, 19}),
      NormGradient("relu, few channels", relu, {9, 8, 7, 4}),
      NormTraining("no gamma", no_gamma, {2, 3, 5, 3}),
      NormTraining("no beta", no_beta, {2, 3, 5, 3}),
      NormTraining("neither gamma nor beta", bare, {2, 3, 5, 3}),
      NormGradient("relu6, several pieces of rows", relu6, {40, 9, 9, 64}),
      NormGradient("relu6, odd channels", relu6, {3, 5, 7, 19}),
      NormGradient("swish, several pieces of rows", swish, {40, 9, 9, 64}),
      NormGradient("swish, few channels, several pieces of rows", swish, {9, 30, 31, 5}),
      NormGradient("swish, several tiles of channels", swish, {1100, 100}),
      NormGradient("swish, no gamma", swish_no_gamma, {9, 8, 7, 24}),
      NormGradient("swish, neither gamma nor beta", swish_bare, {3, 5, 7, 19}),
      NormGradient("few channels, several pieces of rows", plain, {9, 30, 31, 5}),
      NormGradient("no gamma, several pieces of rows", no_gamma, {40, 9, 9, 64}),
      NormGradient("no beta, odd channels", no_beta, {3, 5, 7, 19}),
      NormGradient("neither gamma nor beta", bare, {3, 5, 7, 19}),
      NormGradient("relu, several tiles of channels", relu, {1100, 100}),
      NormGradient("relu, no gamma", relu_no_gamma, {9, 8, 7, 24}),
      NormGradient("relu, no beta", relu_no_beta, {9, 8, 7, 24}),
      NormGradient("relu, neither gamma nor beta", relu_bare, {3, 5, 7, 19}),
      WithResidual(NormGradient("residual, several pieces of rows", relu, {40, 9, 9, 64})),
      WithResidual(NormGradient("residual, several tiles of channels", relu, {1100, 100})),
      WithResidual(NormGradient("residual, odd channels", relu, {3, 5, 7, 19})),
      OfTwo(WithResidual(NormGradient("residual, two addends", relu, {40, 9, 9, 64}))),
      OfTwo(WithResidual(NormGradient("residual, two addends, few channels", relu, {9, 8, 7, 4}))),
      OfTwo(WithResidual(NormGradient("residual, two addends, odd channels", relu, {3, 5, 7, 19}))),
      NormTraining("relu, no gamma", relu_no_gamma, {3, 3, 2, 3}),
      NormTraining("relu, neither gamma nor beta", relu_bare, {3, 3, 2, 3}),
      NormTraining("swish, neither gamma nor beta", swish_bare, {3, 3, 2, 3}),
      NormInference("neither gamma nor beta", bare, {3, 5, 7, 19}),
      NormInference("several pieces of rows", plain, {40, 9, 9, 64}),
      NormInference("relu, odd channels", relu, {3, 5, 7, 19}),
      NormInference("relu6, few channels", relu6, {9, 8, 7, 4}),
      NormInference("swish, few channels", swish, {9, 8, 7, 4}),
      WithResidual(NormInference("residual, relu, several pieces of rows", relu, {40, 9, 9, 64})),
      WithResidual(NormInference("residual, odd channels", plain, {3, 5, 7, 19})),
      NormInference("few elements", plain, {2, 3, 2, 3}),
      NormInference("few elements, neither gamma nor beta", bare, {2, 3, 2, 3}),
      NormInferenceGradient("several pieces of rows", plain, {40, 9, 9, 64}),
      NormInferenceGradient("neither gamma nor beta", bare, {3, 5, 7, 19}),
  };
}

}  // namespace ringmaster::graph
