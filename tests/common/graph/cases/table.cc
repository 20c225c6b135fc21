#include "tests/common/graph/cases/table.h"

#include <cmath>
#include <utility>

#include "common/graph/ops/reference_executor.h"
#include "common/numeric/philox.h"

namespace ringmaster::graph {

using Cases = std::vector<OpCase>();

// Each in the file of its family.
Cases AddCases, AveragePoolCases, BatchNormCases, BoxCases, CastCases, Conv2dCases, DenseCases,
    DropoutCases, GlobalAveragePoolCases, GroupNormCases, MaxPoolCases, MultiplyCases,
    PairLossCases, ReduceToCases, ReluCases, ReshapeCases, SoftmaxCases, SoftmaxCrossEntropyCases,
    UnaryCases;

namespace {

constexpr Cases* kFamilies[] = {
    AddCases,       AveragePoolCases, BatchNormCases,
    BoxCases,       CastCases,        Conv2dCases,
    DenseCases,     DropoutCases,     GlobalAveragePoolCases,
    GroupNormCases, MaxPoolCases,     MultiplyCases,
    PairLossCases,  ReduceToCases,    ReluCases,
    ReshapeCases,   SoftmaxCases,     SoftmaxCrossEntropyCases,
    UnaryCases,
};

// Two runs of the reference an element, under sanitizers, too: 1,000 would take ten times as long.
constexpr int64_t kFewElements = 500;

PhiloxStream StreamOf(uint64_t subject) {
  return {5, PhiloxStream::Purpose::kInitialize, 0, subject, "operand"};
}

std::vector<double> DrawInts(const TensorType& type, int64_t classes, uint64_t subject) {
  const PhiloxStream stream = StreamOf(subject);
  std::vector<double> values(static_cast<size_t>(Elements(type.shape)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = stream.Below(i, static_cast<uint32_t>(classes));
  }
  return values;
}

}  // namespace

const std::vector<OpCase>& AllCases() {
  static const std::vector<OpCase> all = [] {
    std::vector<OpCase> joined;
    for (Cases* family : kFamilies) {
      for (OpCase& test : family()) joined.push_back(std::move(test));
    }
    return joined;
  }();
  return all;
}

std::string NameOf(const OpCase& test) {
  return std::string(TraitsOf(test.kind).name) + ", " + test.what;
}

OpCase InType(OpCase test, DType compute) {
  const uint32_t float32_inputs = TraitsOf(test.kind).float32_inputs;
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    const bool stays = (float32_inputs >> i & 1) != 0;
    if (!stays && test.inputs[i].dtype == DType::kFloat32) test.inputs[i].dtype = compute;
  }
  for (TensorType& type : test.wanted) {
    if (type.dtype == DType::kFloat32) type.dtype = compute;
  }
  return test;
}

int64_t RowsOf(const OpCase& test) {
  const Shape& shape = test.inputs.front().shape;
  return shape.empty() ? 1 : shape.front();
}

bool HasFiniteDifferences(const OpCase& test) {
  if (test.forward_only || OpTable()[test.kind.index()].gradient == nullptr) return false;
  int64_t elements = 0;
  for (const TensorType& type : test.inputs) elements += Elements(type.shape);
  return elements <= kFewElements;
}

std::vector<double> DrawFloats(const TensorType& type, Spread spread, uint64_t subject) {
  const PhiloxStream stream = StreamOf(subject);
  std::vector<double> values(static_cast<size_t>(Elements(type.shape)));
  for (size_t i = 0; i < values.size(); ++i) {
    double value = 2 * static_cast<double>(stream.Uniform(i)) - 1;
    if (spread == Spread::kAwayFromZero) value = 0.9 * value + std::copysign(0.1, value);
    values[i] = Round(value, type.dtype);
  }
  return values;
}

OpCase::Operands DrawOperands(const OpCase& test, Spread spread) {
  OpCase::Operands operands;
  for (const TensorType& type : test.inputs) {
    const uint64_t subject = operands.size();
    operands.push_back(type.dtype == DType::kInt32 ? DrawInts(type, test.classes, subject)
                                                   : DrawFloats(type, spread, subject));
  }
  if (test.prepare != nullptr) test.prepare(test, &operands);
  return operands;
}

}  // namespace ringmaster::graph
