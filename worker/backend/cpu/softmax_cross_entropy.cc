// softmax_cross_entropy and its gradient, in float32 logits with sums in double. Losses of rows are
// added in row order, whatever the thread count.
#include <algorithm>
#include <cmath>

#include "worker/backend/cpu/kernel_table.h"
#include "worker/backend/cpu/parallel.h"

namespace ringmaster::cpu {
namespace {

// log of the sum of exp(logits), without overflow; NaN logits give NaN.
double LogSum(const float* logits, int64_t classes) {
  const double largest = *std::max_element(logits, logits + classes);
  double sum = 0;
  for (int64_t k = 0; k < classes; ++k) sum += std::exp(static_cast<double>(logits[k]) - largest);
  return largest + std::log(sum);
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindSoftmaxCrossEntropy(BindContext& context) {
  const int64_t rows = context.input(0).shape[0];
  const int64_t classes = context.input(0).shape[1];
  const auto body = [=, threads = context.threads](const Operands& operands, const RunKeys&) {
    const auto* labels = operands.input<int32_t>(1);
    auto* losses = reinterpret_cast<double*>(operands.workspace);
    ParallelFor(threads, rows, [&](int64_t n) {
      const float* logits = operands.input<float>(0) + n * classes;
      losses[n] = LogSum(logits, classes) - static_cast<double>(logits[labels[n]]);
    });
    double loss = 0;
    int64_t correct = 0;
    for (int64_t n = 0; n < rows; ++n) {
      const float* logits = operands.input<float>(0) + n * classes;
      loss += losses[n];
      correct += std::max_element(logits, logits + classes) - logits == labels[n] ? 1 : 0;
    }
    *operands.output<float>(0) = static_cast<float>(loss);
    *operands.output<float>(1) = static_cast<float>(correct);
  };
  return MakeLoop(body, sizeof(double) * static_cast<size_t>(rows));
}

StatusOr<std::unique_ptr<Kernel>> BindSoftmaxCrossEntropyGradient(BindContext& context) {
  const int64_t rows = context.input(0).shape[0];
  const int64_t classes = context.input(0).shape[1];
  return MakeLoop([=, threads = context.threads](const Operands& operands, const RunKeys&) {
    const auto* labels = operands.input<int32_t>(1);
    const double seed = *operands.input<float>(2);
    ParallelFor(threads, rows, [&](int64_t n) {
      const float* logits = operands.input<float>(0) + n * classes;
      float* dlogits = operands.output<float>(0) + n * classes;
      const double log_sum = LogSum(logits, classes);
      for (int64_t k = 0; k < classes; ++k) {
        const double softmax = std::exp(static_cast<double>(logits[k]) - log_sum);
        dlogits[k] = static_cast<float>((softmax - (k == labels[n] ? 1 : 0)) * seed);
      }
    });
  });
}

}  // namespace ringmaster::cpu
