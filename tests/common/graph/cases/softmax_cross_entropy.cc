#include <algorithm>
#include <cmath>

#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {
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
  }
  return cases;
}

}  // namespace ringmaster::graph
