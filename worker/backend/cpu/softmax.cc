#include <algorithm>
#include <cmath>

#include "worker/backend/cpu/arena.h"
#include "worker/backend/cpu/kernel.h"
#include "worker/backend/cpu/packet.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/strips.h"

namespace ringmaster::cpu {

// softmax over the last axis and its gradient, in float32; sums in double, in LaneSum's order.

namespace {

struct SoftmaxExtent {
  int64_t rows, classes;
  int threads;
};

SoftmaxExtent MakeSoftmaxExtent(const BindContext& context) {
  const graph::Shape& shape = context.output(0).shape;
  return {graph::Elements(shape) / shape.back(), shape.back(), context.threads};
}

// `exponentials` holds a row.
template <typename T>
void SoftmaxRow(const T* x, T* y, float* exponentials, int64_t classes) {
  auto largest = static_cast<float>(x[0]);
  InStrips(
      classes,
      [&](int64_t, int64_t length, const auto* x) {
        for (int64_t k = 0; k < length; ++k) {
          const auto candidate = static_cast<float>(x[k]);
          largest = candidate > largest ? candidate : largest;
        }
      },
      x);
  const Packet offset(static_cast<double>(largest));
  MapPackets(
      classes, [=](Packet x) { return Exp(x - offset); }, exponentials, x);
  LaneSum sum;
  sum.Add(classes, [=](int64_t k) { return exponentials[k]; });
  const auto divisor = static_cast<float>(sum.Total());
  InStrips(
      classes,
      [=]<typename U>(int64_t at, int64_t length, U* y) {
        for (int64_t k = 0; k < length; ++k) y[k] = U(exponentials[at + k] / divisor);
      },
      y);
}

template <typename T>
void SoftmaxGradientRow(const T* y, const T* dy, T* dx, int64_t classes) {
  LaneSum sum;
  InStrips(
      classes,
      [&](int64_t, int64_t length, const auto* y, const auto* dy) {
        sum.Add(length,
                [=](int64_t k) { return static_cast<float>(y[k]) * static_cast<float>(dy[k]); });
      },
      y, dy);
  const auto offset = static_cast<float>(sum.Total());
  InStrips(
      classes,
      [=]<typename U>(int64_t, int64_t length, const U* y, const U* dy, U* dx) {
        for (int64_t k = 0; k < length; ++k) {
          dx[k] = U(static_cast<float>(y[k]) * (static_cast<float>(dy[k]) - offset));
        }
      },
      y, dy, dx);
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindSoftmax(BindContext& context) {
  const SoftmaxExtent e = MakeSoftmaxExtent(context);
  const size_t row = AlignUp(sizeof(float) * static_cast<size_t>(e.classes));
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLoop(
        [=](const Operands& operands, const RunKeys&) {
          // Thread t takes the rows t, t + threads, ...
          ParallelFor(e.threads, e.threads, [&](int64_t thread) {
            auto* scratch =
                reinterpret_cast<float*>(operands.workspace + static_cast<size_t>(thread) * row);
            for (int64_t n = thread; n < e.rows; n += e.threads) {
              SoftmaxRow(operands.input<T>(0) + n * e.classes,
                         operands.output<T>(0) + n * e.classes, scratch, e.classes);
            }
          });
        },
        row * static_cast<size_t>(e.threads));
  });
}

StatusOr<std::unique_ptr<Kernel>> BindSoftmaxGradient(BindContext& context) {
  const SoftmaxExtent e = MakeSoftmaxExtent(context);
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLoop([=](const Operands& operands, const RunKeys&) {
      ParallelFor(e.threads, e.rows, [&](int64_t n) {
        SoftmaxGradientRow(operands.input<T>(0) + n * e.classes,
                           operands.input<T>(1) + n * e.classes,
                           operands.output<T>(0) + n * e.classes, e.classes);
      });
    });
  });
}

// softmax_cross_entropy and its gradient, in float32 logits with sums in double, and top_k. Losses
// of rows are added in row order, whatever the thread count.

namespace {

// log of the sum of exp(logits), without overflow; NaN logits give NaN.
double LogSum(const float* logits, int64_t classes) {
  const double largest = *std::max_element(logits, logits + classes);
  double sum = 0;
  for (int64_t k = 0; k < classes; ++k) sum += std::exp(static_cast<double>(logits[k]) - largest);
  return largest + std::log(sum);
}

// The mean logit under the target: label_smoothing of it is spread over all classes.
double Expected(const float* logits, int64_t classes, int32_t label, double smoothing) {
  const auto own = static_cast<double>(logits[label]);
  if (smoothing == 0) return own;
  double sum = 0;
  for (int64_t k = 0; k < classes; ++k) sum += static_cast<double>(logits[k]);
  return (1 - smoothing) * own + smoothing * (sum / static_cast<double>(classes));
}

// What the share of rows' own targets is, the input behind so many others; 1 without it.
double ShareOf(const Operands& operands, size_t others) {
  return operands.inputs.size() == others ? 1 : double{*operands.input<float>(others)};
}

bool IsHit(const float* logits, int64_t classes, int32_t label, int64_t k) {
  const float own = logits[label];
  int64_t before = 0;
  for (int64_t j = 0; j < label; ++j) before += logits[j] >= own ? 1 : 0;
  for (int64_t j = label + 1; j < classes; ++j) before += logits[j] > own ? 1 : 0;
  return !std::isnan(own) && before < k;
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindSoftmaxCrossEntropy(BindContext& context) {
  const int64_t rows = context.input(0).shape[0];
  const int64_t classes = context.input(0).shape[1];
  const double smoothing =
      context.attributes<graph::SoftmaxCrossEntropyAttributes>().label_smoothing;
  const auto body = [=, threads = context.threads](const Operands& operands, const RunKeys&) {
    const auto* labels = operands.input<int32_t>(1);
    auto* losses = reinterpret_cast<double*>(operands.workspace);
    const double share = ShareOf(operands, 2);
    ParallelFor(threads, rows, [&](int64_t n) {
      const float* logits = operands.input<float>(0) + n * classes;
      double expected = Expected(logits, classes, labels[n], smoothing);
      if (share != 1) {
        const double next = Expected(logits, classes, labels[(n + 1) % rows], smoothing);
        expected = share * expected + (1 - share) * next;
      }
      losses[n] = LogSum(logits, classes) - expected;
    });
    double loss = 0;
    for (int64_t n = 0; n < rows; ++n) loss += losses[n];
    *operands.output<float>(0) = static_cast<float>(loss);
  };
  return MakeLoop(body, sizeof(double) * static_cast<size_t>(rows));
}

StatusOr<std::unique_ptr<Kernel>> BindSoftmaxCrossEntropyGradient(BindContext& context) {
  const int64_t rows = context.input(0).shape[0];
  const int64_t classes = context.input(0).shape[1];
  const double smoothing =
      context.attributes<graph::SoftmaxCrossEntropyAttributes>().label_smoothing;
  const double each = smoothing / static_cast<double>(classes);
  return MakeLoop([=, threads = context.threads](const Operands& operands, const RunKeys&) {
    const auto* labels = operands.input<int32_t>(1);
    const double seed = *operands.input<float>(2), share = ShareOf(operands, 3);
    ParallelFor(threads, rows, [&](int64_t n) {
      const float* logits = operands.input<float>(0) + n * classes;
      float* dlogits = operands.output<float>(0) + n * classes;
      const double log_sum = LogSum(logits, classes);
      for (int64_t k = 0; k < classes; ++k) {
        const double softmax = std::exp(static_cast<double>(logits[k]) - log_sum);
        double target = (k == labels[n] ? 1 - smoothing : 0) + each;
        if (share != 1) {
          const double next = (k == labels[(n + 1) % rows] ? 1 - smoothing : 0) + each;
          target = share * target + (1 - share) * next;
        }
        dlogits[k] = static_cast<float>((softmax - target) * seed);
      }
    });
  });
}

StatusOr<std::unique_ptr<Kernel>> BindTopK(BindContext& context) {
  const int64_t rows = context.input(0).shape[0];
  const int64_t classes = context.input(0).shape[1];
  const int64_t most = context.attributes<graph::TopK>().k;
  return MakeLoop([=](const Operands& operands, const RunKeys&) {
    const auto* labels = operands.input<int32_t>(1);
    int64_t hits = 0;
    for (int64_t n = 0; n < rows; ++n) {
      const float* logits = operands.input<float>(0) + n * classes;
      hits += IsHit(logits, classes, labels[n], most) ? 1 : 0;
    }
    *operands.output<float>(0) = static_cast<float>(hits);
  });
}

}  // namespace ringmaster::cpu
