#include <algorithm>
#include <cmath>

#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {
namespace {

// Logits of 120 .. 136, exact in 16 bits: exp alone would be infinite in float32.
void LargeLogits(const OpCase& /*self*/, OpCase::Operands* operands) {
  for (double& value : operands->front()) value = 128 + std::round(value * 8);
}

}  // namespace

std::vector<OpCase> SoftmaxCases() {
  return {
      {"three classes", Softmax{}, {{{5, 3}}}},
      {"a sequence", Softmax{}, {{{2, 3, 13}}}},
      {"one class", Softmax{}, {{{4, 1}}}},
      {.what = "large logits", .kind = Softmax{}, .inputs = {{{3, 10}}}, .prepare = LargeLogits},
      {"many classes", Softmax{}, {{{7, 1001}}}},
      {"a sequence", SoftmaxGradient{}, {{{2, 3, 13}}, {{2, 3, 13}}}},
      {"many classes", SoftmaxGradient{}, {{{7, 1001}}, {{7, 1001}}}},
  };
}

namespace {

// Logits of which several are the largest, and labels that are the first of them in every other
// row.
void EqualLogits(const OpCase& self, OpCase::Operands* operands) {
  std::vector<double>& logits = (*operands)[0];
  for (double& logit : logits) logit = std::round(logit * 16) / 2 + 100;
  for (int64_t row = 0; row < RowsOf(self); ++row) {
    const auto first = logits.begin() + row * self.classes;
    const auto largest = std::max_element(first, first + self.classes) - first;
    (*operands)[1][static_cast<size_t>(row)] =
        static_cast<double>(row % 2 == 0 ? largest : row % self.classes);
  }
}

OpCase LossOf(const char* what, int64_t rows, int64_t classes) {
  return {.what = what,
          .kind = SoftmaxCrossEntropy{},
          .inputs = {{{rows, classes}}, {{rows}, DType::kInt32}},
          .classes = classes};
}

}  // namespace

std::vector<OpCase> SoftmaxCrossEntropyCases() {
  std::vector<OpCase> cases = {LossOf("three classes", 5, 3), LossOf("one class", 2, 1)};
  for (const auto& [rows, classes] : {std::pair(1, 2), std::pair(5, 10), std::pair(4, 32),
                                      std::pair(7, 1000), std::pair(300, 33)}) {
    OpCase test = LossOf("", rows, classes);
    test.what = fmt::format("equal logits, {} rows, {} classes", rows, classes);
    test.prepare = EqualLogits;
    cases.push_back(test);
    OpCase gradient = test;
    gradient.kind = SoftmaxCrossEntropyGradient{};
    gradient.inputs.push_back(TensorType{});  // the gradient of the sum
    cases.push_back(gradient);
    gradient.what = "smooth, " + gradient.what;
    gradient.kind = SoftmaxCrossEntropyGradient{{0.125}};
    cases.push_back(gradient);
    gradient.what = "mixed, " + gradient.what;
    gradient.inputs.push_back(TensorType{});  // the share
    cases.push_back(gradient);
    for (const int64_t k : {1, 5}) {
      OpCase measure = test;
      measure.what = fmt::format("k of {}, {}", k, test.what);
      measure.kind = TopK{k};
      measure.forward_only = true;
      cases.push_back(measure);
    }
  }
  for (const auto& [rows, classes] : {std::pair(5, 3), std::pair(4, 32), std::pair(7, 1000)}) {
    OpCase test = LossOf("smooth", rows, classes);
    test.what = fmt::format("smooth, {} classes", classes);
    test.kind = SoftmaxCrossEntropy{{0.125}};
    cases.push_back(test);
    test.what = "mixed, " + test.what;
    test.inputs.push_back(TensorType{});  // the share of rows' own labels
    test.constants = 0b100;
    cases.push_back(test);
  }
  OpCase mixed = LossOf("mixed, one row", 1, 5);
  mixed.inputs.push_back(TensorType{});
  mixed.constants = 0b100;
  cases.push_back(mixed);
  return cases;
}

}  // namespace ringmaster::graph
