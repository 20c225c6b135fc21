// softmax over the last axis and its gradient, in float32; sums in double, in LaneSum's order.
#include "worker/backend/cpu/aligned_buffer.h"
#include "worker/backend/cpu/kernel_table.h"
#include "worker/backend/cpu/lane_sum.h"
#include "worker/backend/cpu/packet.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/strips.h"

namespace ringmaster::cpu {
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

}  // namespace ringmaster::cpu
