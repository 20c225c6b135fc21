#include <cmath>

#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {
namespace {

// The deviation's inverse, input 3 of a gradient.
void PositiveDeviation(const OpCase& /*self*/, OpCase::Operands* operands) {
  for (double& inverse : (*operands)[3]) inverse = std::abs(inverse) + 0.5;
}

// A mean of many deviations, exact in 16 bits: a sum of squares would lose the variance.
void OffsetOfEight(const OpCase& /*self*/, OpCase::Operands* operands) {
  for (double& value : operands->front()) value = 8 + std::round(value * 4) / 16;
}

// The op and its gradient with the operands that its attributes ask for.
template <typename Op, typename GradientOp, typename Attributes>
void AddNorm(const char* what, const Attributes& attributes, const Shape& x,
             const Shape& statistics, std::vector<OpCase>* cases) {
  const TensorType channels = {{x.back()}};
  OpCase forward = {what, Op{attributes}, {{x}}};
  if (attributes.scale) forward.inputs.push_back(channels);
  if (attributes.center) forward.inputs.push_back(channels);
  OpCase gradient = {.what = what,
                     .kind = GradientOp{attributes},
                     .inputs = {{x}, {x}, {statistics}, {statistics}},
                     .prepare = PositiveDeviation};
  if (attributes.scale) gradient.inputs.push_back(channels);
  cases->push_back(std::move(forward));
  cases->push_back(std::move(gradient));
}

void AddGroupNorm(const char* what, const GroupNormAttributes& attributes, const Shape& x,
                  std::vector<OpCase>* cases) {
  AddNorm<GroupNorm, GroupNormGradient>(what, attributes, x, {x[0], attributes.groups}, cases);
}

void AddLayerNorm(const char* what, const NormAttributes& attributes, const Shape& x,
                  std::vector<OpCase>* cases) {
  AddNorm<LayerNorm, LayerNormGradient>(what, attributes, x, Shape(x.begin(), x.end() - 1), cases);
}

}  // namespace

std::vector<OpCase> GroupNormCases() {
  std::vector<OpCase> cases;
  AddGroupNorm("two groups", {{}, 2}, {2, 3, 5, 6}, &cases);
  AddGroupNorm("one group, large epsilon", {{0.5}, 1}, {3, 2, 2, 5}, &cases);
  AddGroupNorm("a group a channel, no gamma", {{1e-3, false, true}, 4}, {2, 3, 4, 4}, &cases);
  AddGroupNorm("no beta", {{1e-3, true, false}, 3}, {2, 7, 9}, &cases);
  AddGroupNorm("neither gamma nor beta", {{1e-3, false, false}, 2}, {3, 3, 4}, &cases);
  AddGroupNorm("32 groups, several blocks of channels", {{}, 32}, {5, 9, 7, 160}, &cases);
  AddGroupNorm("features", {{}, 3}, {7, 57}, &cases);
  AddGroupNorm("whole vectors", {{}, 4}, {3, 5, 6, 64}, &cases);
  AddGroupNorm("many positions, whole vectors", {{}, 2}, {2, 23, 31, 16}, &cases);
  AddGroupNorm("many positions", {{}, 3}, {2, 17, 19, 9}, &cases);
  AddLayerNorm("features", {}, {7, 13}, &cases);
  AddLayerNorm("a sequence, large epsilon", {0.5}, {2, 3, 9}, &cases);
  AddLayerNorm("no gamma", {1e-3, false, true}, {3, 2, 7}, &cases);
  AddLayerNorm("no beta", {1e-3, true, false}, {3, 8}, &cases);
  AddLayerNorm("neither gamma nor beta", {1e-3, false, false}, {4, 5}, &cases);
  AddLayerNorm("many rows", {}, {3, 100, 129}, &cases);
  AddLayerNorm("several blocks of channels", {}, {9, 600}, &cases);
  OpCase offset = {"an offset that would cancel", LayerNorm{}, {{{20, 64}}, {{64}}, {{64}}}};
  offset.prepare = OffsetOfEight;
  cases.push_back(std::move(offset));
  return cases;
}

}  // namespace ringmaster::graph
