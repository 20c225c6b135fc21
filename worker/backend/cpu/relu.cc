// relu and its gradient, which masks by the output. NaN passes, so that it reaches the loss.
#include "worker/backend/cpu/bfloat16.h"
#include "worker/backend/cpu/kernel_table.h"
#include "worker/backend/cpu/parallel.h"

namespace ringmaster::cpu {
namespace {
constexpr int64_t kPiece = 8192;
}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindRelu(BindContext& context) {
  const int64_t count = graph::Elements(context.output(0).shape);
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLoop([count, threads = context.threads](const Operands& operands, const RunKeys&) {
      const T* x = operands.input<T>(0);
      T* y = operands.output<T>(0);
      ParallelPieces(threads, count, kPiece, [=](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          const auto value = static_cast<float>(x[i]);
          y[i] = T(value <= 0 ? 0.0F : value);
        }
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
      ParallelPieces(threads, count, kPiece, [=](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          const auto gradient = static_cast<float>(dy[i]);
          dx[i] = T(static_cast<float>(y[i]) <= 0 ? 0.0F : gradient);
        }
      });
    });
  });
}

}  // namespace ringmaster::cpu
