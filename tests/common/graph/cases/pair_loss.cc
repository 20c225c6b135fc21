#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {
namespace {

// Predictions to -8 .. 8 and, where they are probabilities, targets of 0 .. 1.
template <bool kProbabilities>
void Wide(const OpCase& /*self*/, OpCase::Operands* operands) {
  for (double& value : (*operands)[0]) value *= 8;
  if (!kProbabilities) return;
  for (double& value : (*operands)[1]) value = value < 0 ? 0 : value;
}

// The last prediction is its target, and threshold.
void Equal(const OpCase& /*self*/, OpCase::Operands* operands) {
  (*operands)[0].back() = (*operands)[1].back() = 0;
}

template <typename Op>
void AddLossAndGradient(const std::string& what, const Op& op, std::vector<OpCase>* cases) {
  const std::string said = what.empty() ? "" : what + ", ";
  constexpr bool kProbabilities =
      std::is_same_v<Op, SigmoidCrossEntropy> || std::is_same_v<Op, BinaryAccuracy>;
  const auto add = [&](const char* shape_of, const Kind& kind, const Shape& shape, bool gradient,
                       void (*prepare)(const OpCase&, OpCase::Operands*)) {
    OpCase test = {.what = said + shape_of,
                   .kind = kind,
                   .inputs = {{shape}, {shape}},
                   .prepare = prepare,
                   .forward_only = !PairLossWithSlope<Op>,
                   .constants = 0b10};
    if (gradient) test.inputs.push_back(TensorType{});
    cases->push_back(test);
  };
  add("one number a sample", op, {7}, false, nullptr);
  add("odd shape, wide", op, {3, 5, 7}, false, Wide<kProbabilities>);
  add("a tail after many packets", op, {2, 4099}, false, nullptr);
  if constexpr (PairLossWithSlope<Op>) {
    const PairLossGradient<Op> gradient = {op};
    add("odd shape, wide", gradient, {3, 5, 7}, true, Wide<kProbabilities>);
    add("at its target", gradient, {3, 3}, true, Equal);
    add("a tail after many packets", gradient, {2, 4099}, true, nullptr);
  }
}

}  // namespace

std::vector<OpCase> PairLossCases() {
  std::vector<OpCase> cases;
  AddLossAndGradient("", BinaryAccuracy{}, &cases);
  AddLossAndGradient("threshold", BinaryAccuracy{0.5}, &cases);
  AddLossAndGradient("", Huber{}, &cases);
  AddLossAndGradient("delta", Huber{0.25}, &cases);
  AddLossAndGradient("", MeanAbsoluteError{}, &cases);
  AddLossAndGradient("", MeanSquaredError{}, &cases);
  AddLossAndGradient("", SigmoidCrossEntropy{}, &cases);
  AddLossAndGradient("smooth", SigmoidCrossEntropy{0.25}, &cases);
  return cases;
}

}  // namespace ringmaster::graph
