// add: y = a + b, element by element.
#include "worker/backend/cpu/kernel_table.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/strips.h"

namespace ringmaster::cpu {

StatusOr<std::unique_ptr<Kernel>> BindAdd(BindContext& context) {
  const int64_t count = graph::Elements(context.output(0).shape);
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLoop([count, threads = context.threads](const Operands& operands, const RunKeys&) {
      const T* a = operands.input<T>(0);
      const T* b = operands.input<T>(1);
      T* y = operands.output<T>(0);
      ParallelPieces(threads, count, kElementPiece, [=](int64_t first, int64_t last) {
        InStrips(
            last - first,
            []<typename U>(int64_t, int64_t length, const U* a, const U* b, U* y) {
              for (int64_t i = 0; i < length; ++i) {
                y[i] = U(static_cast<float>(a[i]) + static_cast<float>(b[i]));
              }
            },
            a + first, b + first, y + first);
      });
    });
  });
}

}  // namespace ringmaster::cpu
