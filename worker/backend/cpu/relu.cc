// relu and its gradient, which masks by the output. NaN passes, so that it reaches the loss.
#include "worker/backend/cpu/kernel_table.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/strips.h"

namespace ringmaster::cpu {

StatusOr<std::unique_ptr<Kernel>> BindRelu(BindContext& context) {
  const int64_t count = graph::Elements(context.output(0).shape);
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLoop([count, threads = context.threads](const Operands& operands, const RunKeys&) {
      const T* x = operands.input<T>(0);
      T* y = operands.output<T>(0);
      ParallelPieces(threads, count, kElementPiece, [=](int64_t first, int64_t last) {
        InStrips(
            last - first,
            []<typename U>(int64_t, int64_t length, const U* x, U* y) {
              for (int64_t i = 0; i < length; ++i) {
                const auto value = static_cast<float>(x[i]);
                y[i] = U(value <= 0 ? 0.0F : value);
              }
            },
            x + first, y + first);
      });
    });
  });
}

StatusOr<std::unique_ptr<Kernel>> BindReluGradient(BindContext& context) {
  const int64_t count = graph::Elements(context.output(0).shape);
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLoop([count, threads = context.threads](const Operands& operands, const RunKeys&) {
      const T* y = operands.input<T>(0);
      const T* dy = operands.input<T>(1);
      T* dx = operands.output<T>(0);
      ParallelPieces(threads, count, kElementPiece, [=](int64_t first, int64_t last) {
        InStrips(
            last - first,
            []<typename U>(int64_t, int64_t length, const U* y, const U* dy, U* dx) {
              for (int64_t i = 0; i < length; ++i) {
                const auto gradient = static_cast<float>(dy[i]);
                dx[i] = U(static_cast<float>(y[i]) <= 0 ? 0.0F : gradient);
              }
            },
            y + first, dy + first, dx + first);
      });
    });
  });
}

}  // namespace ringmaster::cpu
